"""How every failure leaves the gateway: `{"detail": <one sentence>}` with the right status. Installed by app.py."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from runyard_api.errors import RunyardError
from runyard_gateway.body import JsonResponse
from runyard_gateway.json_input import BAD_JSON

log = structlog.get_logger(__name__)
RETRY_AFTER_SECONDS = "1"
_HEADERS = {503: {"Retry-After": RETRY_AFTER_SECONDS}, 401: {"WWW-Authenticate": "Bearer"}}


def install(app: FastAPI) -> None:
    """Makes the app answer in the contract's form for errors of ours, of validation and of routing."""
    app.add_exception_handler(RunyardError, _on_runyard_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)


def failure(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """A response in the contract's form."""
    return JsonResponse({"detail": detail}, status_code=status, headers=headers)


def failure_of(error: RunyardError) -> JsonResponse:
    """The response of one of our errors; Unavailable asks the client to come back."""
    return failure(error.status, error.detail, _HEADERS.get(error.status))


async def _on_runyard_error(request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, RunyardError)
    if error.status >= 500:
        log.warning("request failed", path=request.url.path, status=error.status, reason=error.reason)
    return failure_of(error)


async def _on_invalid(_: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, RequestValidationError)
    return failure(422, sentence(error.errors()))


async def _on_http_error(_: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, HTTPException)
    return failure(error.status_code, error.detail, error.headers)


def sentence(errors: Sequence[Any]) -> str:
    """The first of pydantic's errors as one sentence that names the field and, where there are any, the allowed values.

    Where the field may be of several types there is an error for each; they are joined by "or".
    """
    first = errors[0]
    if first["type"] == "json_invalid":
        return BAD_JSON
    field = _field(first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{field}: this field is not known to the server"
    if first["type"] == "missing":
        return f"{field}: this field is required"
    # Where one of several types fits on the outside, what is wrong lies deeper: that is the sentence to give.
    if inside := [e for e in errors if _field(e["loc"]).startswith((f"{field}[", f"{field}."))]:
        return sentence(inside)
    messages = [_plain(e["msg"]) for e in errors if _field(e["loc"]) == field]
    return f"{field}: {' or '.join(dict.fromkeys(messages))}"


_BRANCHES = ("dict[", "list[", "literal[", "function-", "tuple[", "union", "nullable")
_TYPE_NAMES = frozenset({"str", "Send", "int", "bool", "float", "uuid"})


def _field(loc: Sequence[int | str]) -> str:
    """`stream_mode[0]` for ("body", "stream_mode", 0); the branch of a union that pydantic tried is left out."""
    text = ""
    for part in loc[1:]:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.startswith(_BRANCHES) and part not in _TYPE_NAMES:
            text += f".{part}" if text else part
    return text or "Request body"


_OBJECT = re.compile(r"(a valid dictionary|an object)( or (instance of \w+|object to extract fields from))?")


def _plain(message: str) -> str:
    message = _OBJECT.sub("an object", message.removeprefix("Value error, "))
    return message if message[1:2].isupper() else message[:1].lower() + message[1:]
