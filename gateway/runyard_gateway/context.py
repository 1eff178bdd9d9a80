"""What the routes share: made once by app.py, handed to each route by FastAPI."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from runyard_gateway.handover import Handover
from runyard_gateway.metrics import Tally
from runyard_gateway.ports import Runs
from runyard_gateway.settings import Settings
from runyard_gateway.state import ThreadStates
from runyard_store.database import Database


@dataclass(frozen=True)
class Context:
    """`stopping` is set when the server shuts down: open streams end then."""

    settings: Settings
    db: Database
    runs: Runs
    now: Callable[[], datetime]
    handover: Handover
    states: ThreadStates
    stopping: asyncio.Event
    tally: Tally = field(default_factory=Tally)


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(_context)]
