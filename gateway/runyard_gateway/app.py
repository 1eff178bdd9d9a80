"""The gateway's ASGI application, put together from its settings and what it depends on; started by __main__ and by
`runyard dev`."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fastapi import FastAPI

from runyard_gateway.ports import Runs
from runyard_gateway.settings import Settings

if TYPE_CHECKING:
    from runyard_store.database import Database


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Deps:
    """What the application is given: an open database and the world that executes runs. It closes neither."""

    db: "Database"
    runs: Runs
    now: Callable[[], datetime] = _utc_now


def create_app(settings: Settings, deps: Deps) -> FastAPI:
    """The application. Its lifespan starts and stops its background tasks."""
    app = FastAPI(title="Runyard")
    app.state.settings, app.state.deps = settings, deps
    return app
