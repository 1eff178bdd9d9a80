"""The outermost layer of the application, as plain ASGI: a request id on every answer, no failure without an answer."""

import re
import time
import uuid

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runyard_gateway.failures import failure
from runyard_gateway.metrics import Metrics

log = structlog.get_logger(__name__)
_USABLE_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestContext:
    """Echoes the caller's `x-request-id` or makes one, and answers 500 in the contract's form when a route breaks.

    Every line that is logged for a request names its id; so does one at level debug for the request itself,
    which is counted too.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        structlog.contextvars.clear_contextvars()  # a server may handle two requests of a connection in one context
        structlog.contextvars.bind_contextvars(request=request_id.decode())
        started, began = False, time.monotonic()

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                seconds, status = round(time.monotonic() - began, 4), message["status"]
                log.debug("request", method=scope["method"], path=scope["path"], status=status, seconds=seconds)
                self._metrics.answered(getattr(scope.get("route"), "path", None), scope["method"], status, seconds)
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("request broke", path=scope["path"], method=scope["method"])
            if started:
                raise
            await failure(500, "Internal server error")(scope, receive, send_with_id)


def _request_id(scope: Scope) -> bytes:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given if _USABLE_ID.fullmatch(given) else str(uuid.uuid4()).encode()
