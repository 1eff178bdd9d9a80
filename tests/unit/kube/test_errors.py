"""Which error an answer of the API server becomes."""

import orjson
import pytest

from runyard_api.errors import Unavailable as DependencyUnavailable
from runyard_kube import errors
from runyard_kube.errors import MESSAGE_LIMIT, KubeError, error_of, error_of_status


def _status(code: int, reason: str = "", message: str = "said") -> bytes:
    return orjson.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (413, "RequestEntityTooLarge", errors.Invalid),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (405, "MethodNotAllowed", errors.Unavailable),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
    ],
)
def test_an_answer_becomes(code: int, reason: str, expected: type[KubeError]) -> None:
    error = error_of(code, _status(code, reason))
    assert type(error) is expected
    assert (error.code, error.message) == (code, "said")


@pytest.mark.parametrize("body", [b"<html>proxy</html>", b"", b"[]", b'{"kind": "Run"}'], ids=repr)
def test_a_body_that_is_no_status_is_dropped(body: bytes) -> None:
    assert error_of(502, body).message == "the API server answered 502 without a reason"


def test_a_long_message_is_cut() -> None:
    assert len(error_of(422, _status(422, message="x" * 5000)).message) == MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)]
)
def test_retry_after_is_read_in_seconds(header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"Retry-After": header}
    assert error_of(429, _status(429), headers).retry_after == seconds


def test_an_error_event_of_a_watch_becomes_the_same_errors() -> None:
    error = error_of_status({"kind": "Status", "code": 410, "message": "too old resource version"})
    assert isinstance(error, errors.Gone)


def test_at_the_edge_of_a_service_it_is_a_failed_dependency_without_the_server_s_words() -> None:
    error = error_of(404, _status(404, message='secrets "x" not found'))
    assert isinstance(error, DependencyUnavailable)
    assert (error.status, error.detail) == (503, "The cluster's API can't serve this now; try again.")
    assert str(error) == 'NotFound (404): secrets "x" not found'
