"""One reader's event stream of one run: from the pod that executes it, across pods and attempts, to its end.

Waits on Runs.watch for an endpoint, copies that pod's events, goes on after the last one delivered when the pod goes
away or another attempt begins, and takes the rest from the log once the run has finished. Each event is delivered once
and ids rise; events of an older attempt are below those of a newer one, so the same comparison drops them.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import structlog
from structlog.contextvars import bound_contextvars

from runyard_api.errors import RunyardError
from runyard_api.events import END, Event, EventId
from runyard_api.retry import pause
from runyard_gateway.following import (
    RECHECK_SECONDS,
    RETRY_SECONDS,
    VANISHED_RECHECK_SECONDS,
    Followed,
    follow,
    patiently,
    row_of,
)
from runyard_gateway.metrics import Tally
from runyard_gateway.ports import AgentEndpoint, Runs
from runyard_gateway.render import Renderer, end_frame, error_frame, metadata_frame
from runyard_gateway.streaming import Sink
from runyard_store import event_log
from runyard_store.database import Database
from runyard_store.runs import RunRow

log = structlog.get_logger(__name__)
END_GRACE_SECONDS = 2.0
"""How long a pod may take to deliver its last events after the run is known to have finished; then the log has them."""


class Relay:
    """`after`: the reader has all up to this id (None: nothing). `live`: it wants only what comes from now on."""

    def __init__(
        self,
        db: Database,
        runs: Runs,
        run: RunRow,
        renderer: Renderer,
        *,
        after: EventId | None,
        live: bool,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._db, self._runs, self._renderer = db, runs, renderer
        self._run: RunRow | None = run
        self._run_id = run.run_id
        self._after, self._live = after, live
        self._fed = None if renderer.needs_history else after
        self._ended = False

    async def pump(self, sink: Sink) -> None:
        """Writes the stream to its end. A reader that wants live events of a finished run gets none."""
        if self._run is not None and self._run.status.finished:
            if self._live:
                return
        else:
            await self._follow(sink)
            self._tally.log_fallbacks += not self._ended
        if not self._ended:
            await self._from_log(sink)
        if not self._ended:
            await self._from_row(sink)

    async def _follow(self, sink: Sink) -> None:
        """Copies events of pods until the end was delivered or the row is final."""
        patience = RECHECK_SECONDS
        while not self._ended:
            async with follow(self._runs, self._run_id) as followed:
                await self._while_followed(followed, patience, sink)
            if self._ended or await self._settled():
                return
            patience = VANISHED_RECHECK_SECONDS
            await asyncio.sleep(RETRY_SECONDS[1])

    async def _while_followed(self, followed: Followed, patience: float, sink: Sink) -> None:
        failures = 0
        while not self._ended and not followed.over:
            endpoint, attempt = followed.status.endpoint, followed.status.attempt
            if endpoint is None:
                await followed.until(lambda: followed.over or followed.status.endpoint is not None, patience)
                if followed.status.endpoint is None and await self._settled():
                    return
                continue
            before = self._fed
            await self._read(endpoint, attempt, followed, sink)
            if self._ended or followed.over or await self._settled():
                return
            failures = 0 if self._fed != before else failures + 1
            seconds = pause(RETRY_SECONDS, failures + 1)
            await followed.until(lambda: followed.over or followed.status.attempt > attempt, seconds)  # noqa: B023

    async def _read(self, endpoint: AgentEndpoint, attempt: int, followed: Followed, sink: Sink) -> None:
        """Copies from one pod until it has no more, another attempt begins, or the run is over and the pod is late."""
        with bound_contextvars(attempt=attempt):
            copying = asyncio.create_task(self._copy(endpoint, sink))
        moved = asyncio.create_task(followed.until(lambda: followed.over or followed.status.attempt > attempt))
        try:
            await asyncio.wait({copying, moved}, return_when=asyncio.FIRST_COMPLETED)
            if followed.over:
                await asyncio.wait({copying}, timeout=END_GRACE_SECONDS)
        finally:
            copying.cancel()
            moved.cancel()
            await asyncio.wait({copying, moved})
        if not copying.cancelled():
            copying.result()

    async def _copy(self, endpoint: AgentEndpoint, sink: Sink) -> None:
        live = self._live and self._fed is None
        try:
            async with aclosing(endpoint.event_batches(self._run_id, self._fed, live=live)) as batches:
                async for batch in batches:
                    await self._deliver(batch, sink)
                    if self._ended:
                        return
        except RunyardError as error:
            log.info("event stream of a pod broke", reason=error.reason, detail=error.detail)

    async def _deliver(self, batch: Sequence[Event], sink: Sink) -> None:
        frames = []
        for event in batch:
            if self._fed is not None and event.id <= self._fed:
                continue
            self._fed = event.id
            frame = self._renderer.render(event)
            if self._after is None or event.id > self._after:
                frames.append(frame)
            self._ended = self._ended or event.mode == END
        self._tally.events += len(frames)
        if data := b"".join(frames):
            await sink.write(data)

    async def _settled(self) -> bool:
        """Reads the row again; true when it is final or gone."""
        self._run = await row_of(self._db, self._run_id)
        return self._run is None or self._run.status.finished

    async def _from_log(self, sink: Sink) -> None:
        if self._live and self._fed is None:
            return
        while batch := await patiently(lambda: event_log.read(self._db, self._run_id, self._fed), what="event log"):
            await self._deliver(batch, sink)

    async def _from_row(self, sink: Sink) -> None:
        """The end of a run whose log doesn't tell it: no pod ever held it, a rollback removed it, or it was deleted
        before a slow reader had everything."""
        known, run = self._run, await row_of(self._db, self._run_id)
        frames = []
        if run is not None and self._fed is None and not self._live:
            frames.append(metadata_frame(run.run_id, max(run.attempt, 1)))
        if run is not None and run.error:
            frames.append(error_frame(run.error["error"], run.error["message"]))
        if run is None and known is not None and known.status.finished:
            frames.append(error_frame("Deleted", "the run was deleted before all of its events were read"))
        await sink.write(b"".join([*frames, end_frame()]))
