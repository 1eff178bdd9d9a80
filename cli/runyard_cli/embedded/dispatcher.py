"""The embedded world that executes runs: the gateway's `Runs` on one runtime in the same process.

`process` makes it from the database's rows and a client of the runtime's unix socket. `board` decides what is due; here
it is carried out: one worker per thread at a time, a first-in-first-out line for slots, retries that slow down.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from runyard_api.agent import RunDefaults
from runyard_api.conditions import RunReason
from runyard_api.errors import Early, Held, NoSlot, NotFound, RunyardError, Stale, Unavailable
from runyard_api.internal import RunError, RunHeld, RunStart, StatusMessage
from runyard_api.retry import pause
from runyard_api.states import CancelAction, RunState
from runyard_cli.embedded.board import Board, Entry
from runyard_cli.embedded.feeds import Feed, Feeds
from runyard_cli.embedded.report import RunReport
from runyard_clients.runtime import StartAnswer
from runyard_gateway.ports import AgentEndpoint, AgentView, RunStatus
from runyard_store.deletion import RemovedRun
from runyard_store.runs import RunRow

log = structlog.get_logger()
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds until a thread is looked at again after the first, second, … failure in a row."""
MAX_FAILURES = RunDefaults().max_failures
ACTIVE_DEADLINE_SECONDS = RunDefaults().active_deadline_seconds
"""The default of an Agent's `runDefaults.maxFailures`."""


class Runtime(AgentEndpoint, Protocol):
    """The part of the runtime's API that the dispatcher drives; runyard_clients.runtime.RuntimeClient has it."""

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer: ...

    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None: ...

    async def ack(self, run_id: str) -> None: ...

    def status(self) -> AsyncGenerator[StatusMessage, None]: ...


class Rows(Protocol):
    """The rows of the runs, as the dispatcher needs them."""

    async def get(self, run_id: str) -> RunRow:
        """Raises NotFound."""
        ...

    async def unfinished(self) -> Sequence[RunRow]:
        """All unfinished runs of the database."""
        ...

    async def finish(self, run_id: str, state: RunState, error: RunError | None) -> RunRow | None:
        """Ends a run that no runtime holds. Gives the row as it is then (the first end wins), None if it is gone."""
        ...

    async def roll_back(self, run_id: str) -> None:
        """Removes a run that no runtime holds and what it wrote; one that is gone already is no error."""
        ...


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
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected = asyncio.Event()
        self._stopping = False

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
            self._wake(thread_id)
        return len(rows)

    async def stop(self) -> None:
        """Stops looking after runs; those under way belong to the runtime, which hands them over to the next start."""
        self._stopping = True
        tasks = [*self._tasks, *self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # The gateway's protocol

    async def submit(self, run: RunRow) -> None:
        if self._adopt(run):
            self._wake(run.thread_id)

    async def cancel(self, run: RunRow, action: CancelAction, reason: str) -> None:
        if self._board.cancel(run.run_id, action, reason):
            self._wake(run.thread_id)

    async def remove(self, run: RemovedRun) -> None:
        entry = self._board.cancel(run.run_id, CancelAction.INTERRUPT, "the run was deleted")
        if entry:
            self._wake(entry.thread_id)

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
            return Feed(RunStatus(row.status, row.attempt, error=_error(row)))
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
            await asyncio.sleep(PAUSES[1])

    def _on_status(self, message: StatusMessage) -> None:
        self._slots = message.slots
        for held in message.runs:
            self._heard(held)
        if message.kind == "snapshot":
            for entry in self._board.lost(held.run_id for held in message.runs):
                self._wake(entry.thread_id)
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
                self._later(entry.thread_id, f"attempt {held.attempt} was given up")
        if held.state.finished and self._board.get(held.run_id) is None:
            self._spawn(self._acknowledge(held.run_id))

    def _ended(self, entry: Entry) -> None:
        """A run has left the board: tell its watchers, look at its thread and at the line for its slot."""
        self._feeds.publish(entry.run_id, None if entry.rolled_back else self._status(entry))
        started = self._started.pop(entry.run_id, None)
        self._failures.pop(entry.thread_id, None)
        self._report.run_ended(entry, None if started is None else self._clock() - started)
        self._wake(entry.thread_id)
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
        entry = Entry(
            run_id=row.run_id,
            thread_id=row.thread_id,
            graph_id=row.graph_id,
            sequence=row.sequence,
            strategy=row.multitask_strategy,
            attempt=row.attempt,
            failures=row.failures,
            cancel=row.cancel_action,
            cancel_reason=row.cancel_reason or "",
            not_before=row.not_before,
        )
        added = self._board.add(entry)
        if added:
            self._feeds.open(entry.run_id, self._status(entry))
        return added

    def _wake(self, thread_id: str) -> None:
        """Lets a worker look at the thread now, or again if one is at it."""
        if self._stopping:
            return
        if thread_id in self._workers:
            self._again.add(thread_id)
            return
        self._workers[thread_id] = asyncio.create_task(self._work(thread_id))

    def _next_in_line(self) -> None:
        """Wakes as many threads that wait for a slot as there are free slots."""
        for _ in range(min(len(self._line), self._slots - self._board.bound)):
            thread_id = next(iter(self._line))
            del self._line[thread_id]
            self._wake(thread_id)

    async def _work(self, thread_id: str) -> None:
        try:
            await self._turn(thread_id)
        except RunyardError as error:
            self._later(thread_id, error.detail)
        except Exception:
            log.exception("thread's turn failed", thread=thread_id)
            self._later(thread_id, "a bug, see the traceback")
        finally:
            del self._workers[thread_id]
        if thread_id in self._again:
            self._again.discard(thread_id)
            self._wake(thread_id)

    def _later(self, thread_id: str, why: str) -> None:
        failures = self._failures[thread_id] = self._failures.get(thread_id, 0) + 1
        seconds = pause(PAUSES, failures)
        log.debug("thread waits", thread=thread_id, seconds=seconds, why=why)
        asyncio.get_running_loop().call_later(seconds, self._wake, thread_id)

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
            seconds = (plan.due - self._now()).total_seconds()
            asyncio.get_running_loop().call_later(max(0.0, seconds), self._wake, thread_id)

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
        if entry.failures >= MAX_FAILURES:
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
                active_deadline_seconds=ACTIVE_DEADLINE_SECONDS,
            )
            answer = await self._runtime.start_run(entry.run_id, start)
        except RunyardError as error:
            self._board.unbind(entry.run_id)
            await self._refused(entry, error)
        else:
            self._heard(answer.run)

    async def _refused(self, entry: Entry, error: RunyardError) -> None:
        """What a refusal means: wait in line, look at the rows again, try later, or the run's end."""
        match error:
            case NoSlot():
                self._line[entry.thread_id] = None
            case NotFound():
                self._vanished(entry.run_id)
            case Stale():
                await self._reread(entry.run_id)
                raise error
            case Early():
                for row in await self._rows.unfinished():
                    self._adopt(row)
                raise error
            case Held() | Unavailable():
                raise error
            case _:
                failure = RunError(error=error.reason, message=error.detail)
                await self._finish(entry.run_id, RunState.ERROR, failure)

    async def _reread(self, run_id: str) -> None:
        """Takes the run's newest attempt or its end from its row."""
        row = await self._rows.get(run_id)
        self._board.set_attempt(run_id, row.attempt)
        if row.status.finished and (entry := self._board.take_off(run_id)):
            self._ended(_as_row_says(entry, row))

    async def _finish(self, run_id: str, state: RunState, error: RunError | None) -> None:
        row = await self._rows.finish(run_id, state, error)
        if row is None:
            self._vanished(run_id)
        elif entry := self._board.take_off(run_id):
            self._ended(_as_row_says(entry, row))

    def _vanished(self, run_id: str) -> None:
        if entry := self._board.take_off(run_id):
            self._feeds.publish(run_id, None)
            self._wake(entry.thread_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _as_row_says(entry: Entry, row: RunRow) -> Entry:
    return replace(entry, state=row.status, error=_error(row), bound=False)


def _error(row: RunRow) -> RunError | None:
    return RunError.model_validate(row.error) if row.error else None
