"""What the API server's answers mean, as exceptions; made in one place, from the HTTP status.

KubeError                      carries `message` (the server's, cut), `code`, `retry_after`
├── Unauthorized 401           the credentials aren't accepted
├── Forbidden 403              RBAC, quota, or the namespace is going away
├── NotFound 404
├── Conflict 409               the resourceVersion or UID given is no longer the object's
│   └── AlreadyExists          the name is taken
├── Gone 410                   the resourceVersion or page is too old: list again
├── Invalid 400, 413, 415, 422 the object is refused; the message names the field
├── TooManyRequests 429
└── Unavailable                everything else, no answer in time, no connection

Where one of them reaches the edge of a service uncaught it is a failed dependency: status 503, and a neutral detail, so
that no message of the API server leaves by the gateway. Callers catch the ones that are outcomes.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from runyard_api.errors import Unavailable as DependencyUnavailable

MESSAGE_LIMIT = 1024


class KubeError(DependencyUnavailable):
    """An answer of the API server that isn't success. `code` 0: there was no answer; `retry_after` in seconds."""

    def __init__(self, message: str, *, code: int = 0, retry_after: float | None = None) -> None:
        super().__init__("The cluster's API can't serve this now; try again.")
        self.message = message[:MESSAGE_LIMIT]
        self.code = code
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{type(self).__name__} ({self.code}): {self.message}" if self.code else self.message


class Unauthorized(KubeError):
    pass


class Forbidden(KubeError):
    pass


class NotFound(KubeError):
    pass


class Conflict(KubeError):
    pass


class AlreadyExists(Conflict):
    pass


class Gone(KubeError):
    pass


class Invalid(KubeError):
    pass


class TooManyRequests(KubeError):
    pass


class Unavailable(KubeError):
    pass


_BY_CODE: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def error_of(code: int, body: bytes, headers: Mapping[str, str] | None = None) -> KubeError:
    """The error for an HTTP answer. A body that isn't a Kubernetes Status (a proxy's page) is dropped."""
    status = _status_in(body)
    return error_of_status(status | {"code": code}, retry_after=_seconds((headers or {}).get("Retry-After")))


def error_of_status(status: Mapping[str, Any], *, retry_after: float | None = None) -> KubeError:
    """The error for a Status object, as a body or as the object of a watch's ERROR event."""
    code = int(status.get("code") or 0)
    chosen = _BY_CODE.get(code, Unavailable)
    if chosen is Conflict and status.get("reason") == "AlreadyExists":
        chosen = AlreadyExists
    message = str(status.get("message") or f"the API server answered {code} without a reason")
    return chosen(message, code=code, retry_after=retry_after)


def _status_in(body: bytes) -> dict[str, Any]:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return decoded if isinstance(decoded, dict) and decoded.get("kind") == "Status" else {}


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds; its other form, a date, isn't used by the API server and counts as absent."""
    return float(header) if header and header.isdigit() else None
