"""One attempt of a run on the server loop: from its claim to the transaction that ends it.

Made by `registry.py`. Sends the execution to the graph loop, moves its events to readers and log, writes the end.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeVar

import structlog

from runyard_api.deadline import exceeded
from runyard_api.errors import Fenced, Unavailable
from runyard_api.events import END, ERROR, METADATA, Event, EventId
from runyard_api.internal import RunError, RunHeld
from runyard_api.payload import RunPayload
from runyard_api.states import CancelAction, RunState, ThreadState
from runyard_runtime.emit import Emitter
from runyard_runtime.execution import Assignment, Execution, Outcome
from runyard_runtime.feed import Feed, LogWriter
from runyard_runtime.graph_loop import GraphLoop
from runyard_runtime.graphs import Graphs
from runyard_runtime.metrics import Metrics
from runyard_runtime.run_config import RunIdentity
from runyard_runtime.serialize import dumps
from runyard_store import event_log
from runyard_store.checkpoints import Checkpointers
from runyard_store.database import Database
from runyard_store.finish import Finish, finish_rollback, finish_run
from runyard_store.known_head import KnownHead
from runyard_store.leases import Claim
from runyard_store.pre_run import restore_pre_run
from runyard_store.runs import get_run
from runyard_store.threads import get_thread

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Engine:
    """What attempts work with; made once by `runtime.py`."""

    db: Database
    graphs: Graphs
    graph_loop: GraphLoop
    checkpointers: Checkpointers
    recursion_limit: int
    stop_grace_seconds: float
    metrics: Metrics = field(default_factory=Metrics)


class Attempt:
    """A run this pod holds or held. `changed` is called whenever `report()` gives something new."""

    def __init__(
        self,
        claim: Claim,
        attempt: int,
        engine: Engine,
        changed: Callable[["Attempt"], None],
        *,
        deadline_seconds: int | None = None,
    ) -> None:
        """`deadline_seconds`: how long the run may take from its first attempt's start; None: as long as it wants."""
        run = claim.run
        self.run_id, self.thread_id, self.number = run.run_id, run.thread_id, attempt
        self.state = RunState.RUNNING
        self.feed = Feed(base=run.event_base, attempt=attempt)
        self._claim, self._engine, self._changed = claim, engine, changed
        self._error: dict[str, str] | None = None
        self._rolled_back = False
        self._given_up: Literal["fenced", "drained"] | None = None
        self._cancel: CancelAction | None = None
        self._deadline_seconds = deadline_seconds
        self._late: RunError | None = None
        loop = asyncio.get_running_loop()
        self._emitter = Emitter(
            base=run.event_base,
            attempt=attempt,
            wake=lambda: loop.call_soon_threadsafe(self._move_events),
            loop_call=engine.graph_loop.call,
        )
        self._writer = LogWriter(self._append, self._logged)
        self._execution = self._make_execution()
        self._task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more: it ended, or was given up."""
        return self.state.finished or self._given_up is not None

    @property
    def given_up(self) -> bool:
        return self._given_up is not None

    def report(self) -> RunHeld:
        """What the status stream says of it."""
        return RunHeld(
            run_id=self.run_id,
            thread_id=self.thread_id,
            attempt=self.number,
            state=self.state,
            error=RunError(**self._error) if self._error else None,
            rolled_back=self._rolled_back,
            given_up=self._given_up,
        )

    def start(self) -> None:
        """Begins to execute. The first event of a first attempt is out before the graph loop hears of it."""
        if self.number == 1:
            self._emitter.emit(METADATA, (), dumps({"run_id": self.run_id, "attempt": 1}))
            self._move_events()
        self._task = asyncio.create_task(self._drive(), name=f"run {self.run_id}")
        self._mind_the_deadline(self._task)

    def cancel(self, action: CancelAction) -> None:
        """Stops the run; its end comes on the status stream. A rollback is never weakened."""
        self._cancel = action.escalated(self._cancel)
        self._engine.graph_loop.call(self._execution.cancel, "cancelled")

    def _mind_the_deadline(self, task: asyncio.Task[None]) -> None:
        started, seconds = self._claim.run.started_at, self._deadline_seconds
        if started is None or seconds is None:
            return
        left = (started - datetime.now(UTC)).total_seconds() + seconds
        timer = asyncio.get_running_loop().call_later(max(0.0, left), self._time_out, seconds)
        task.add_done_callback(lambda _: timer.cancel())

    def _time_out(self, seconds: int) -> None:
        if not self.over and self._cancel is None:
            self._late = exceeded(seconds)
            _log.info("run is past its deadline", seconds=seconds)
            self._engine.graph_loop.call(self._execution.cancel, "cancelled")

    def fence(self) -> None:
        """Stops an attempt that lost its thread; it writes nothing any more."""
        self._engine.graph_loop.call(self._execution.cancel, "fenced")

    def drain(self, *, now: bool) -> None:
        """Stops at the next step boundary, or at once; the run goes on elsewhere."""
        if now:
            self._engine.graph_loop.call(self._execution.cancel, "drained")
        else:
            self._execution.drain()

    async def wait(self) -> None:
        """Waits until nothing of it runs any more."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def events(self, after: EventId | None, *, live: bool) -> AsyncGenerator[bytes, None]:
        """Lines of events as `Feed.read` gives them."""
        start = self.feed.last if live else after
        return self.feed.read(start, lambda position: event_log.read(self._engine.db, self.run_id, position))

    def _make_execution(self) -> Execution:
        claim, run, engine = self._claim, self._claim.run, self._engine
        identity = RunIdentity(
            run.run_id, run.thread_id, run.graph_id, run.assistant_id, run.user_id, attempt=self.number
        )
        ahead = 0 if claim.head_ms is None else max(0, claim.head_ms - time.time_ns() // 1_000_000)
        assignment = Assignment(
            identity=identity,
            payload=RunPayload.model_validate(run.payload),
            recursion_limit=engine.recursion_limit,
            resume=claim.resume,
            ahead_ms=ahead,
        )
        known = KnownHead(run.thread_id, empty=claim.pre_run.cut is None and not claim.resume)
        return Execution(
            assignment,
            graphs=engine.graphs,
            saver=lambda fenced: engine.checkpointers.saver(run.thread_id, claim.epoch, fenced, known),
            known=known,
            store=engine.checkpointers.store,
            emitter=self._emitter,
            ending=lambda: engine.graph_loop.ending,
        )

    async def _drive(self) -> None:
        try:
            if self.number > 1 and not self._claim.resume:
                await self._until_answered(self._restore)
            outcome = await self._engine.graph_loop.run(self._execution.run())
            await self._quiet(outcome)
            await self._end(outcome)
        except Fenced:
            self._give_up("fenced")
        except Unavailable as error:  # the graph loop is gone: the process stops
            _log.warning("run left", error=error.detail)
            self._give_up("drained")
        except Exception:  # the run's books are broken: another attempt may do better than this one
            _log.exception("attempt broke")
            self._give_up("drained")
        self._changed(self)

    async def _restore(self) -> None:
        await restore_pre_run(self._engine.db, self.thread_id, self._claim.epoch, self._claim.pre_run)

    async def _quiet(self, outcome: Outcome) -> None:
        """After a stop, waits for the run's sync code, which can't be stopped, up to the grace."""
        if outcome.kind in ("success", "error"):
            return
        try:
            async with asyncio.timeout(self._engine.stop_grace_seconds):
                await self._execution.threads.idle()
        except TimeoutError:
            _log.warning("sync code of a stopped run still works")

    async def _end(self, outcome: Outcome) -> None:
        self._move_events()
        rest = await self._writer.close()
        if outcome.kind == "fenced":
            self._give_up("fenced")
        elif outcome.kind == "drained":
            if rest:
                await self._append(rest)
            self._give_up("drained")
        elif self._cancel is CancelAction.ROLLBACK:
            await self._roll_back()
        else:
            await self._finish(outcome, rest)

    async def _finish(self, outcome: Outcome, rest: list[Event]) -> None:
        kinds = {"success": RunState.SUCCESS, "error": RunState.ERROR, "cancelled": RunState.INTERRUPTED}
        state = kinds[outcome.kind]
        if self._late is not None and outcome.kind == "cancelled":
            state, outcome = RunState.TIMEOUT, replace(outcome, error=self._late.model_dump())
        if outcome.error:
            if outcome.error.get("error") == Unavailable.__name__:
                self._engine.metrics.checkpoint_failed()
            self._emitter.emit(ERROR, (), dumps(outcome.error))
        self._emitter.emit(END, (), dumps({"status": state}))
        last = self._emitter.take()
        finish = await self._until_answered(lambda: self._finish_values(outcome, state, [*rest, *last]))
        if not await self._until_answered(lambda: finish_run(self._engine.db, finish)):
            row = await self._until_answered(lambda: get_run(self._engine.db, self.run_id))
            state, outcome = row.status, Outcome("error", error=row.error)
        self._close(state, outcome.error, last)

    async def _finish_values(self, outcome: Outcome, state: RunState, events: list[Event]) -> Finish:
        shown = outcome.shown
        thread = None if shown else await get_thread(self._engine.db, self.thread_id)
        failed = state in (RunState.ERROR, RunState.TIMEOUT)
        resting = shown.status if shown else ThreadState.IDLE
        return Finish(
            run_id=self.run_id,
            thread_id=self.thread_id,
            epoch=self._claim.epoch,
            attempt=self.number,
            state=state,
            result=outcome.result,
            error=outcome.error,
            values=shown.values if shown else thread and thread.values,
            interrupts=shown.interrupts if shown else thread and thread.interrupts,
            head=shown.head if shown else thread and thread.head,
            thread_status=ThreadState.ERROR if failed else resting,
            last_events=events,
            now=datetime.now(UTC),
        )

    async def _roll_back(self) -> None:
        claim = self._claim
        self._emitter.emit(END, (), dumps({"status": RunState.INTERRUPTED}))
        last = self._emitter.take()
        await self._until_answered(
            lambda: finish_rollback(
                self._engine.db,
                run_id=self.run_id,
                thread_id=self.thread_id,
                epoch=claim.epoch,
                pre_run=claim.pre_run,
                now=datetime.now(UTC),
            )
        )
        self._rolled_back = True
        self._close(RunState.INTERRUPTED, None, last)

    def _close(self, state: RunState, error: dict[str, str] | None, last: list[Event]) -> None:
        self.state, self._error = state, error
        self.feed.push(last)
        self.feed.end()

    def _give_up(self, why: Literal["fenced", "drained"]) -> None:
        self._given_up = why
        self.feed.end()

    async def _until_answered(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Tries again while the database doesn't answer: the run's end waits for it, up to the end of the process."""
        delay = 0.1
        while True:
            try:
                return await call()
            except Unavailable as error:
                self._engine.metrics.waited("end")
                _log.warning("run waits for the database", error=error.detail)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)

    def _move_events(self) -> None:
        if events := self._emitter.take():
            self.feed.push(events)
            self._writer.add(events)

    async def _append(self, events: list[Event]) -> None:
        try:
            await event_log.append(self._engine.db, self.run_id, self.thread_id, self._claim.epoch, events)
        except Fenced:
            self.fence()
            raise
        except Unavailable:
            self._engine.metrics.waited("events")
            raise

    def _logged(self, events: list[Event]) -> None:
        self._engine.metrics.logged(len(events))
        self.feed.logged(len(events))
        self._emitter.logged(sum(len(event.data) for event in events))
