"""The runtime's HTTP app: `runyard_api.internal` served by Starlette, behind the pod's token.

Made by `runtime.py`; hands each request to `Registry`, `Threads` or `StatusHub` and turns errors into answers.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard_api.errors import Held, Invalid, RunyardError, Unauthenticated
from runyard_api.events import EventId
from runyard_api.internal import (
    TERM_HEADER,
    CancelRequest,
    ErrorBody,
    HistoryQuery,
    RunStart,
    RuntimeInfo,
    StateQuery,
    StateUpdate,
    StatusMessage,
)
from runyard_api.tokens import bearer, token_matches
from runyard_runtime.lines import LinesResponse
from runyard_runtime.metrics import CONTENT_TYPE
from runyard_runtime.registry import Registry
from runyard_runtime.status import StatusHub
from runyard_runtime.stored_events import stored_events
from runyard_runtime.threads import Threads
from runyard_store.database import Database

_TERM_DIGITS = 18


@dataclass(frozen=True)
class Services:
    """What the routes work with. `snapshot` gives the status without runs, `info` what this runtime is, `healthy`
    whether it can work, `metrics` what Prometheus reads."""

    db: Database
    registry: Registry
    threads: Threads
    hub: StatusHub
    snapshot: Callable[[], StatusMessage]
    info: Callable[[], RuntimeInfo]
    healthy: Callable[[], bool]
    metrics: Callable[[], bytes]


def create_app(services: Services, *, token_sha256: str | None) -> Starlette:
    """The app. `token_sha256` None asks for no token: for a unix socket that only its owner can open."""
    routes = _Routes(services)
    internal = [
        Route("/runs/{run_id}", routes.start, methods=["PUT"]),
        Route("/runs/{run_id}/cancel", routes.cancel, methods=["POST"]),
        Route("/runs/{run_id}/ack", routes.acknowledge, methods=["POST"]),
        Route("/runs/{run_id}/events", routes.events),
        Route("/status", routes.status),
        Route("/ping", routes.ping, methods=["POST"]),
        Route("/info", routes.info),
        Route("/graphs/{graph_id:path}/schemas", routes.schemas),
        Route("/threads/{thread_id}/state", routes.state, methods=["POST"]),
        Route("/threads/{thread_id}/history", routes.history, methods=["POST"]),
        Route("/threads/{thread_id}/update", routes.update, methods=["POST"]),
    ]
    inner: ASGIApp = Router(routes=internal)
    guarded = _TokenGuard(inner, token_sha256) if token_sha256 else inner
    return Starlette(
        routes=[
            Route("/healthz", routes.health),
            Route("/metrics", routes.metrics),
            Mount("/internal/v1", app=guarded),
        ],
        exception_handlers={
            RunyardError: _refused,
            ValidationError: _refused,
            HTTPException: _refused,
            Exception: _broke,
        },
    )


class _Routes:
    def __init__(self, services: Services) -> None:
        self._of = services

    async def health(self, _: Request) -> Response:
        healthy = self._of.healthy()
        return JSONResponse({"ok": healthy}, status_code=200 if healthy else 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._of.metrics(), media_type=CONTENT_TYPE)

    async def start(self, request: Request) -> Response:
        self._obey(request)
        body = RunStart.model_validate_json(await request.body())
        started, report = await self._of.registry.start(request.path_params["run_id"], body)
        return _model(report, status=201 if started else 200)

    async def cancel(self, request: Request) -> Response:
        self._obey(request)
        body = CancelRequest.model_validate_json(await request.body() or b"{}")
        self._of.registry.cancel(request.path_params["run_id"], body.action, body.reason)
        return Response(status_code=202)

    async def acknowledge(self, request: Request) -> Response:
        self._obey(request)
        self._of.registry.acknowledge(request.path_params["run_id"])
        return Response(status_code=204)

    def _obey(self, request: Request) -> None:
        text = request.headers.get(TERM_HEADER)
        if text is None:
            return
        if not text.isdecimal() or len(text) > _TERM_DIGITS:
            raise Invalid(f"{TERM_HEADER}: must be a whole number")
        self._of.registry.obey(int(text))

    async def events(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        after, live = _after(request), request.query_params.get("live") == "1"
        attempt = self._of.registry.find(run_id)
        if attempt is not None:
            return LinesResponse(attempt.events(after, live=live))
        lines = stored_events(self._of.db, run_id, after, live=live)
        first = await anext(lines, b"")  # raises NotFound while an answer can still say so
        return LinesResponse(_with_first(first, lines))

    async def status(self, _: Request) -> Response:
        return LinesResponse(_status_lines(self._of.hub))

    async def ping(self, request: Request) -> Response:
        self._obey(request)
        return _model(self._of.snapshot())

    async def info(self, _: Request) -> Response:
        return _model(self._of.info())

    async def schemas(self, request: Request) -> Response:
        return _model(await self._of.threads.schemas(request.path_params["graph_id"]))

    async def state(self, request: Request) -> Response:
        query = StateQuery.model_validate_json(await request.body())
        return _json(await self._of.threads.state(request.path_params["thread_id"], query))

    async def history(self, request: Request) -> Response:
        query = HistoryQuery.model_validate_json(await request.body())
        return _json(await self._of.threads.history(request.path_params["thread_id"], query))

    async def update(self, request: Request) -> Response:
        change = StateUpdate.model_validate_json(await request.body())
        return _json(await self._of.threads.update(request.path_params["thread_id"], change))


class _TokenGuard:
    """Refuses requests without the pod's token."""

    def __init__(self, app: ASGIApp, token_sha256: str) -> None:
        self._app, self._expected = app, token_sha256

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), None)
        token = bearer(header)
        if token is None or not token_matches(token, self._expected):
            await _error(Unauthenticated("this needs the pod's bearer token"))(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, ValidationError):
        return _error(Invalid(_first_problem(error)))
    if isinstance(error, HTTPException):
        return _model(ErrorBody(reason="NotFound", detail=error.detail), status=error.status_code)
    assert isinstance(error, RunyardError)
    return _error(error)


async def _broke(_: Request, error: Exception) -> Response:
    return _model(ErrorBody(reason="Error", detail=f"the runtime failed with {type(error).__name__}"), status=500)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "body"
    return f"{where}: {problem['msg']}"


def _after(request: Request) -> EventId | None:
    text = request.query_params.get("after")
    if text is None:
        return None
    try:
        return EventId.parse(text)
    except ValueError as error:
        raise Invalid(f"after: {error}") from error


def _error(error: RunyardError) -> Response:
    holder = error.holder if isinstance(error, Held) else None
    return _model(ErrorBody(reason=error.reason, detail=error.detail, holder=holder), status=error.status)


def _model(model: BaseModel, status: int = 200) -> Response:
    return _json(model.model_dump_json().encode(), status)


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status_code=status, media_type="application/json")


async def _status_lines(hub: StatusHub) -> AsyncGenerator[bytes, None]:
    async with aclosing(hub.messages()) as messages:
        async for message in messages:
            yield message.model_dump_json().encode() + b"\n"


async def _with_first(first: bytes, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines):
        if first:
            yield first
        async for chunk in lines:
            yield chunk
