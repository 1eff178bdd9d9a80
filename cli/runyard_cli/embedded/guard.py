"""What the embedded server answers at all: no web page may reach a laptop's server, and nobody else without the token.

Made by `process`; wraps the gateway's application. A page of another site reaches a local server in two ways: by its
own origin, which browsers name in `Origin`, and by a name of its own that it points at this machine (DNS rebinding),
which `Host` names. A form sends no JSON by its right name. The decision is pure (`refusal`); the class applies it.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import UNSUPPORTED_MEDIA_TYPE
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard_api.errors import RunyardError, Unauthenticated
from runyard_api.tokens import bearer, token_hash, token_matches

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PROBES = frozenset({"/ok"})
"""What monitors may ask without the token."""


class NotServed(RunyardError):
    status, reason = 403, "NotServed"


class WrongMediaType(RunyardError):
    status, reason = int(UNSUPPORTED_MEDIA_TYPE), "WrongMediaType"


@dataclass(frozen=True)
class Rules:
    """`hosts`: names beside the loopback's that may be asked for, in lower case. `addresses`: any IP address may, too;
    only names can be rebound. `origins`: whose pages may call, beside those on the loopback, as browsers spell them.
    `token`: what every caller must send; None: nothing."""

    hosts: frozenset[str] = frozenset()
    addresses: bool = False
    origins: frozenset[str] = frozenset()
    token: str | None = None


def refusal(rules: Rules, method: str, path: str, headers: Mapping[str, str]) -> RunyardError | None:
    """Why the request isn't answered; None: it is. `headers` by lower-case name."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if not _host_is_served(rules, host_name(host)):
        return NotServed(f"Host {host[:100]!r} is not served; use localhost, or start with --allow-host NAME.")
    if origin is not None and not _origin_is_served(rules, origin):
        return NotServed(f"Pages of {origin[:100]!r} may not call this server; start with --allow-origin to let them.")
    preflight = method == "OPTIONS" and origin is not None
    if rules.token is not None and not preflight and path not in PROBES and not _has_token(rules.token, headers):
        return Unauthenticated("Send the token, which is in the file 'token' of the state folder, as x-api-key.")
    if _has_body(headers) and media_type(headers.get("content-type", "")) != "application/json":
        return WrongMediaType("The body must be JSON, sent with the header content-type: application/json.")
    return None


def host_name(host: str) -> str:
    """The name or address in a Host header, without port, brackets and the dot at its end."""
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or not port.isdigit():
        name = host.strip().lower()
    name = name.rstrip(".")
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def media_type(content_type: str) -> str:
    """The type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def _host_is_served(rules: Rules, name: str) -> bool:
    return name in LOOPBACK or name in rules.hosts or (rules.addresses and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _origin_is_served(rules: Rules, origin: str) -> bool:
    if origin in rules.origins:
        return True
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and (parts.hostname or "") in LOOPBACK
    except ValueError:
        return False


def _has_token(token: str, headers: Mapping[str, str]) -> bool:
    given = headers.get("x-api-key") or bearer(headers.get("authorization"))
    return given is not None and token_matches(given, token_hash(token))


def _has_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class Guard:
    """Answers what the rules refuse, with the status and one sentence; passes on the rest."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        error = refusal(self._rules, scope["method"], scope["path"], headers)
        if error is None:
            await self._app(scope, receive, send)
            return
        response = JSONResponse({"detail": error.detail}, status_code=error.status)
        if (origin := headers.get("origin")) and _origin_is_served(self._rules, origin):
            response.headers["access-control-allow-origin"] = origin  # else a page can't read what is wrong
            response.headers["vary"] = "Origin"
        await response(scope, receive, send)
