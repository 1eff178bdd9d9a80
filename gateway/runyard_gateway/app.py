"""The gateway's ASGI application, put together from its settings and what it depends on; started by __main__ and by
`runyard dev`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from runyard_gateway import failures
from runyard_gateway.auth import Authentication, KeyCache, Tokens
from runyard_gateway.body import BodyLimits
from runyard_gateway.context import Context
from runyard_gateway.handover import Handover
from runyard_gateway.load import Admission, Load
from runyard_gateway.metrics import Metrics, Present, Tally
from runyard_gateway.middleware import RequestContext
from runyard_gateway.openapi import describe
from runyard_gateway.periodic import repeat
from runyard_gateway.ports import Runs
from runyard_gateway.routes import assistants, bulk, meta, runs, submission, thread_search, thread_state, threads
from runyard_gateway.settings import Settings
from runyard_gateway.state import ThreadStates
from runyard_gateway.temporary import delete_expired
from runyard_store.database import Database

EXPOSED = ("Content-Location", "Location", "X-Pagination-Total", "X-Pagination-Next", "X-Request-Id")
"""Response headers that a browser's scripts may read."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Deps:
    """What the application is given: an open database and the world that executes runs. It closes neither. `tokens`
    None: API keys alone are taken. `watch_ages`: see metrics.Present.

    Set `stopping` when the server begins to shut down: open streams end then, and their clients come back elsewhere.
    """

    db: Database
    runs: Runs
    tokens: Tokens | None = None
    now: Callable[[], datetime] = _utc_now
    watch_ages: Callable[[], dict[str, float]] = dict
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


def create_app(settings: Settings, deps: Deps) -> FastAPI:
    """The application. Its lifespan begins and ends its background tasks."""
    tally, load = Tally(), Load(settings.max_requests, settings.max_streams)
    metrics = Metrics(Present(load, tally, lambda: deps.db.pool_usage(), deps.watch_ages))
    context = Context(
        settings=settings,
        db=deps.db,
        runs=deps.runs,
        now=deps.now,
        handover=Handover(deps.db, deps.runs, tally),
        states=ThreadStates(deps.db, deps.runs),
        stopping=deps.stopping,
        tally=tally,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweep = asyncio.create_task(_delete_expired_threads(settings, deps))
        yield
        sweep.cancel()
        await asyncio.wait({sweep})
        await context.handover.close()

    app = FastAPI(
        title="Runyard",
        description="Threads and runs of LangGraph agents, as LangGraph's SDKs speak to them.",
        version=version("runyard"),
        redoc_url=None,
        lifespan=lifespan,
        middleware=_middleware(settings, deps, load, metrics),
    )
    app.state.context = context
    app.state.load, app.state.metrics = load, metrics
    app.state.bodies = BodyLimits(settings.max_body_bytes)
    failures.install(app)
    # In the order of how often they are called: each request is held against the routes one by one.
    for module in (submission, runs, thread_search, threads, thread_state, bulk, assistants, meta):
        app.include_router(module.router)
    describe(app)
    return app


async def _delete_expired_threads(settings: Settings, deps: Deps) -> None:
    grace = timedelta(seconds=settings.temporary_thread_seconds)
    await repeat(
        lambda: delete_expired(deps.db, deps.now() - grace),
        seconds=settings.sweep_seconds,
        what="deleting the threads of stateless runs",
    )


def _middleware(settings: Settings, deps: Deps, load: Load, metrics: Metrics) -> list[Middleware]:
    """From the outside in."""
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("*",),
            allow_headers=("*",),
            expose_headers=EXPOSED,
        ),
        Middleware(RequestContext, metrics=metrics),
        Middleware(Admission, load=load),
        Middleware(Authentication, auth=settings.auth, keys=KeyCache(deps.db), tokens=deps.tokens, metrics=metrics),
    ]
