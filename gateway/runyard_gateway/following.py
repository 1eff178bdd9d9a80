"""Following one run through the world that executes it: its latest status, kept by a task while a reader needs it.

Used by relay.py (a stream), answers.py (a wait) and handover.py; reads Runs.watch.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import structlog

from runyard_api.errors import NotFound, Unavailable
from runyard_api.retry import pause
from runyard_api.states import RunState
from runyard_gateway.ports import Runs, RunStatus
from runyard_store.database import Database
from runyard_store.runs import RunRow, get_run

log = structlog.get_logger(__name__)
RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Pauses between tries against something that doesn't answer; the last one repeats."""

RECHECK_SECONDS = 15.0
"""How long silence is trusted: then the row is read again, in case the run ended while nobody was looking."""

VANISHED_RECHECK_SECONDS = 1.0
"""The same after the run's object has vanished before its row was final: its end will not be announced."""

T = TypeVar("T")


class Followed:
    """The latest status of a run; `over` once it has finished or vanished."""

    def __init__(self) -> None:
        self.status = RunStatus(RunState.PENDING)
        self.over = False
        self._changed = asyncio.Condition()

    async def keep(self, statuses: AsyncIterator[RunStatus]) -> None:
        """Takes every status until there are no more."""
        try:
            async for status in statuses:
                await self._set(status, over=status.state.finished)
        finally:
            await self._set(self.status, over=True)

    async def until(self, true: Callable[[], bool], seconds: float | None = None) -> None:
        """Returns once `true` holds, looked at with every change, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(true)

    async def _set(self, status: RunStatus, *, over: bool) -> None:
        async with self._changed:
            self.status, self.over = status, over
            self._changed.notify_all()


@contextlib.asynccontextmanager
async def follow(runs: Runs, run_id: str) -> AsyncIterator[Followed]:
    """Keeps the run's latest status for as long as the block lasts."""
    followed = Followed()
    async with contextlib.AsyncExitStack() as stack:
        statuses = await patiently(lambda: stack.enter_async_context(runs.watch(run_id)), what="watch of a run")
        keeper = asyncio.create_task(followed.keep(statuses))
        try:
            yield followed
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})
            if not keeper.cancelled() and (error := keeper.exception()):
                log.warning("the watch of a run broke", run=run_id, reason=str(error))


async def patiently(call: Callable[[], Awaitable[T]], *, what: str) -> T:
    """The call's result, trying again for as long as a dependency doesn't answer: its client is waiting anyway."""
    tries = 0
    while True:
        try:
            return await call()
        except Unavailable as error:
            if tries == 0:
                log.warning("waiting for a dependency", what=what, reason=error.detail)
            await asyncio.sleep(pause(RETRY_SECONDS, tries + 1))
            tries += 1


async def row_of(db: Database, run_id: str) -> RunRow | None:
    """The run's row, None once it is gone; waits out a database that doesn't answer."""
    try:
        return await patiently(lambda: get_run(db, run_id), what="database")
    except NotFound:
        return None


async def finished_row(db: Database, runs: Runs, run_id: str) -> RunRow | None:
    """The run's row once it has finished, however long that takes; None when a rollback has removed it."""
    patience = RECHECK_SECONDS
    while True:
        async with follow(runs, run_id) as followed:
            await followed.until(lambda: followed.over, patience)
            patience = VANISHED_RECHECK_SECONDS if followed.over else RECHECK_SECONDS
        row = await row_of(db, run_id)
        if row is None or row.status.finished:
            return row
        if patience == VANISHED_RECHECK_SECONDS:
            await asyncio.sleep(RETRY_SECONDS[1])
