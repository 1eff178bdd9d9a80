"""What goes on after the answer: handing committed runs over for execution, and cancelling runs whose client left.

A committed run is never refused any more, so a world that doesn't answer is tried again in the background while the
client's heartbeat runs. Used by the routes; calls Runs and the store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import structlog

from runyard_api.errors import NotFound, RunyardError
from runyard_api.states import CancelAction
from runyard_gateway.following import patiently
from runyard_gateway.metrics import Tally
from runyard_gateway.ports import Runs
from runyard_store.database import Database
from runyard_store.deletion import RemovedRun
from runyard_store.runs import RunRow, request_cancel

log = structlog.get_logger(__name__)
AT_ONCE = 16
"""How many runs of all bulk requests are told of at a time: those of others wait behind them at the API server."""
CLIENT_LEFT = "the client disconnected"


class Handover:
    """Runs its work in tasks of its own, which live until they are done or the application stops."""

    def __init__(self, db: Database, runs: Runs, tally: Tally | None = None) -> None:
        self._db, self._runs, self._tally = db, runs, tally or Tally()
        self._tasks: set[asyncio.Task[None]] = set()
        self._many = asyncio.Semaphore(AT_ONCE)

    def submit(self, run: RunRow) -> None:
        """Hands the run over, now if possible."""
        self._tally.submissions += 1
        self._start(lambda: self._patiently(lambda: self._runs.submit(run), what="handing a run over"), run)

    def cancel_soon(self, run: RunRow, reason: str = CLIENT_LEFT) -> None:
        """Interrupts the run, without waiting for it."""

        async def cancel() -> None:
            await self._patiently(lambda: self.cancel(run, CancelAction.INTERRUPT, reason), what="cancelling a run")

        self._start(cancel, run)

    async def _patiently(self, call: Callable[[], Awaitable[None]], *, what: str) -> None:
        tries = 0

        async def counted() -> None:
            nonlocal tries
            self._tally.handover_retries += tries > 0
            tries += 1
            await call()

        await patiently(counted, what=what)

    async def cancel(self, run: RunRow, action: CancelAction, reason: str) -> None:
        """Writes the cancel down and passes it on. Raises NotFound when the run is gone, Unavailable."""
        row = await request_cancel(self._db, run.run_id, action, reason)
        if not row.status.finished:
            await self._runs.cancel(row, row.cancel_action or action, reason)

    def tell_cancelled(self, rows: Sequence[RunRow]) -> None:
        """Passes on cancels that are written down; what isn't passed on is found by a sweep."""
        for row in rows:
            self._start(partial(self._in_turn, partial(self._tell_cancel, row)), row)

    async def _tell_cancel(self, row: RunRow) -> None:
        action = row.cancel_action or CancelAction.INTERRUPT
        await patiently(lambda: self._runs.cancel(row, action, row.cancel_reason or ""), what="cancelling a run")

    def remove(self, removed: Sequence[RemovedRun]) -> None:
        """Sees to it that nothing is left of runs whose rows are gone; the unfinished ones come first."""
        for run in sorted(removed, key=lambda run: not run.unfinished):
            gone = partial(patiently, partial(self._runs.remove, run), what="removing a run")
            self._start(partial(self._in_turn, gone), run)

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._many:
            await work()

    async def close(self) -> None:
        """Drops what isn't done: rows tell every gateway what is left to do."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]], run: RunRow | RemovedRun) -> None:
        task = asyncio.create_task(self._guarded(work, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]], run: RunRow | RemovedRun) -> None:
        try:
            await work()
        except NotFound:
            log.info("the run is gone", run=run.run_id, thread=run.thread_id)
        except RunyardError as error:
            log.error(
                "work on a run was refused",
                run=run.run_id,
                thread=run.thread_id,
                reason=error.reason,
                detail=error.detail,
            )
