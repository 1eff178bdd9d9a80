"""The embedded world that executes runs: the gateway's `Runs` on one runtime in the same process.

`process` makes it from the database's rows and a client of the runtime's unix socket. `board` decides what is due; here
it is carried out, thread by thread (`turns`), with a first-in-first-out line for slots.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

import structlog

from runyard_api.agent import RunDefaults
from runyard_api.conditions import RunReason
from runyard_api.dispatch import Refusal, refusal_of
from runyard_api.errors import NotFound, RunyardError, Unavailable
from runyard_api.internal import RunError, RunHeld, RunStart, StatusMessage
from runyard_api.states import CancelAction, RunState
from runyard_cli.embedded.board import Board, Entry
from runyard_cli.embedded.feeds import Feed, Feeds
from runyard_cli.embedded.ports import Rows, Runtime
from runyard_cli.embedded.report import RunReport
from runyard_cli.embedded.rows import as_row_says, entry_of, error_of
from runyard_cli.embedded.turns import Turns
from runyard_gateway.ports import AgentEndpoint, AgentView, RunStatus
from runyard_store.deletion import RemovedRun
from runyard_store.runs import RunRow

log = structlog.get_logger()
RECONNECT_SECONDS = 0.1
DEFAULTS = RunDefaults()
"""There is no Agent here to say otherwise."""


class Dispatcher:
    """`Runs` for one process. Between `start` and `stop` every unfinished run of the database is carried forward."""

    def __init__(
        self,
        *,
        rows: Rows,
        runtime: Runtime,
        agent: AgentView,
        report: RunReport,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._rows, self._runtime, self._agent, self._report, self._clock = rows, runtime, agent, report, clock
        self._now = now
        self._board, self._feeds = Board(), Feeds()
        self._slots = 0
        self._line: dict[str, None] = {}  # threads that wait for a slot, in order
        self._turns = Turns(self._turn)
        self._started: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected = asyncio.Event()

    async def start(self) -> int:
        """Connects to the runtime and takes up the database's unfinished runs; gives their number.

        Raises Unavailable when the runtime doesn't answer within 10 s.
        """
        rows = await self._rows.unfinished()
        for row in rows:
            self._adopt(row)
        self._spawn(self._follow())
        try:
            await asyncio.wait_for(self._connected.wait(), 10)
        except TimeoutError:
            raise Unavailable("The runtime did not answer within 10 seconds.") from None
        for thread_id in self._board.threads():
            self._turns.wake(thread_id)
        return len(rows)

    async def stop(self) -> None:
        """Stops looking after runs; those under way belong to the runtime, which hands them over to the next start."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._turns.stop()

    # The gateway's protocol

    async def submit(self, run: RunRow) -> None:
        if self._adopt(run):
            self._turns.wake(run.thread_id)

    async def cancel(self, run: RunRow, action: CancelAction, reason: str) -> None:
        if self._board.cancel(run.run_id, action, reason):
            self._turns.wake(run.thread_id)

    async def remove(self, run: RemovedRun) -> None:
        entry = self._board.cancel(run.run_id, CancelAction.INTERRUPT, "the run was deleted")
        if entry:
            self._turns.wake(entry.thread_id)

    def watch(self, run_id: str) -> AbstractAsyncContextManager[AsyncIterator[RunStatus]]:
        return self._watch(run_id)

    def agents(self) -> Sequence[AgentView]:
        return (self._agent,)

    async def endpoint(self, agent_name: str) -> AgentEndpoint:
        if agent_name != self._agent.name:
            raise NotFound(f"There is no agent {agent_name!r}.")
        return self._runtime

    # Watching

    @contextlib.asynccontextmanager
    async def _watch(self, run_id: str) -> AsyncIterator[AsyncIterator[RunStatus]]:
        entry = self._board.get(run_id)
        feed = self._feeds.open(run_id, self._status(entry)) if entry else await self._feed_of_row(run_id)
        async with contextlib.aclosing(feed.watch()) as statuses:
            yield statuses

    async def _feed_of_row(self, run_id: str) -> Feed:
        """The feed of a run that isn't on the board: as its row says, or empty when there is none."""
        try:
            row = await self._rows.get(run_id)
        except NotFound:
            return Feed(None)
        if row.status.finished:
            return Feed(RunStatus(row.status, row.attempt, error=error_of(row)))
        await self.submit(row)
        return self._feeds.open(run_id, RunStatus(row.status, row.attempt))

    def _status(self, entry: Entry) -> RunStatus:
        held = entry.bound and entry.state is RunState.RUNNING
        return RunStatus(entry.state, entry.attempt, self._runtime if held else None, entry.error)

    # What the runtime says

    async def _follow(self) -> None:
        """Follows the status stream for good; it begins with a snapshot each time."""
        while True:
            try:
                async for message in self._runtime.status():
                    self._on_status(message)
            except Unavailable as error:
                log.warning("status stream broke", detail=error.detail)
            except Exception:  # without this stream no run would ever end
                log.exception("status not understood")
            await asyncio.sleep(RECONNECT_SECONDS)

    def _on_status(self, message: StatusMessage) -> None:
        self._slots = message.slots
        for held in message.runs:
            self._heard(held)
        if message.kind == "snapshot":
            for entry in self._board.lost(held.run_id for held in message.runs):
                self._turns.wake(entry.thread_id)
            self._connected.set()
        self._next_in_line()

    def _heard(self, held: RunHeld) -> None:
        before, entry = self._board.get(held.run_id), self._board.heard(held)
        if entry and (held.state.finished or held.rolled_back):
            self._ended(entry)
        elif entry:
            if before and before.state is RunState.PENDING:
                self._started[entry.run_id] = self._clock()
                self._report.run_started(entry)
            self._feeds.publish(entry.run_id, self._status(entry))
            if held.given_up:
                # As a failure of the thread, so that an attempt that breaks each time isn't repeated in a tight loop.
                self._turns.failed(entry.thread_id, f"attempt {held.attempt} was given up")
        if held.state.finished and self._board.get(held.run_id) is None:
            self._spawn(self._acknowledge(held.run_id))

    def _ended(self, entry: Entry) -> None:
        """A run has left the board: tell its watchers, look at its thread and at the line for its slot."""
        self._feeds.publish(entry.run_id, None if entry.rolled_back else self._status(entry))
        started = self._started.pop(entry.run_id, None)
        self._turns.went_well(entry.thread_id)
        self._report.run_ended(entry, None if started is None else self._clock() - started)
        self._turns.wake(entry.thread_id)
        self._next_in_line()

    async def _acknowledge(self, run_id: str) -> None:
        """Lets the runtime forget a finished run; if that fails, the next snapshot brings it again."""
        with contextlib.suppress(NotFound, Unavailable):
            await self._runtime.ack(run_id)

    # One thread's turn

    def _adopt(self, row: RunRow) -> bool:
        """Puts an unfinished row on the board; False when it is there or has ended."""
        if row.status.finished:
            return False
        entry = entry_of(row)
        added = self._board.add(entry)
        if added:
            self._feeds.open(entry.run_id, self._status(entry))
        return added

    def _next_in_line(self) -> None:
        """Wakes as many threads that wait for a slot as there are free slots."""
        for _ in range(min(len(self._line), self._slots - self._board.bound)):
            thread_id = next(iter(self._line))
            del self._line[thread_id]
            self._turns.wake(thread_id)

    async def _turn(self, thread_id: str) -> None:
        """Carries out the thread's plan. Raises RunyardError when some of it has to be tried again."""
        plan = self._board.plan(thread_id, self._now())
        for run_id, action in plan.finish:
            await self._finish_waiting(run_id, action)
        for run_id, action in plan.stop:
            await self._stop_running(run_id, action)
        if plan.dispatch and (entry := self._board.get(plan.dispatch)):
            await self._dispatch(entry)
        if plan.due is not None:
            self._turns.wake_in(thread_id, (plan.due - self._now()).total_seconds())

    async def _finish_waiting(self, run_id: str, action: CancelAction) -> None:
        """Ends a cancelled run that the runtime doesn't hold."""
        if action is CancelAction.ROLLBACK:
            await self._rows.roll_back(run_id)
            self._vanished(run_id)
        else:
            await self._finish(run_id, RunState.INTERRUPTED, None)

    async def _stop_running(self, run_id: str, action: CancelAction) -> None:
        entry = self._board.get(run_id)
        try:
            await self._runtime.cancel(run_id, action, entry.cancel_reason if entry else "")
        except NotFound:
            return  # it has just ended; its end is on the status stream
        self._board.stopping(run_id, action)

    async def _dispatch(self, entry: Entry) -> None:
        """Gives the run to the runtime, if a slot is free; otherwise its thread waits in line.

        One that seems to kill the process ends instead, or it would kill it at every start.
        """
        if entry.failures >= DEFAULTS.max_failures:
            message = f"the process was killed {entry.failures} times while it executed this run"
            failure = RunError(error=RunReason.TOO_MANY_FAILURES.value, message=message)
            await self._finish(entry.run_id, RunState.ERROR, failure)
            return
        if self._board.bound >= self._slots:
            self._line[entry.thread_id] = None
            return
        attempt = self._board.bind(entry.run_id)
        try:
            start = RunStart(
                thread_id=entry.thread_id,
                graph_id=entry.graph_id,
                attempt=attempt,
                active_deadline_seconds=DEFAULTS.active_deadline_seconds,
            )
            answer = await self._runtime.start_run(entry.run_id, start)
        except RunyardError as error:
            self._board.unbind(entry.run_id)
            await self._refused(entry, error)
        else:
            self._heard(answer.run)

    async def _refused(self, entry: Entry, error: RunyardError) -> None:
        """What a refusal means: wait in line, look at the rows again, try later, or the run's end."""
        match refusal_of(error):
            case Refusal.FULL:
                self._line[entry.thread_id] = None
            case Refusal.GONE:
                self._vanished(entry.run_id)
            case Refusal.WRONG:
                failure = RunError(error=error.reason, message=error.detail)
                await self._finish(entry.run_id, RunState.ERROR, failure)
            case Refusal.STALE:
                await self._reread(entry.run_id)
                raise error
            case Refusal.EARLY:
                for row in await self._rows.unfinished():
                    self._adopt(row)
                raise error
            case Refusal.SILENT | Refusal.UNEXPECTED:
                raise error

    async def _reread(self, run_id: str) -> None:
        """Takes the run's newest attempt or its end from its row."""
        row = await self._rows.get(run_id)
        self._board.set_attempt(run_id, row.attempt)
        if row.status.finished and (entry := self._board.take_off(run_id)):
            self._ended(as_row_says(entry, row))

    async def _finish(self, run_id: str, state: RunState, error: RunError | None) -> None:
        row = await self._rows.finish(run_id, state, error)
        if row is None:
            self._vanished(run_id)
        elif entry := self._board.take_off(run_id):
            self._ended(as_row_says(entry, row))

    def _vanished(self, run_id: str) -> None:
        if entry := self._board.take_off(run_id):
            self._feeds.publish(run_id, None)
            self._turns.wake(entry.thread_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
