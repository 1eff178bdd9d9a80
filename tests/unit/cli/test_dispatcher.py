"""The dispatcher against a runtime and rows made of dictionaries: what it sends, and what its watchers see."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from tests.support.store_rows import run_row

from runyard_api.errors import Invalid, NoSlot, NotFound, RunyardError, Stale, Unavailable
from runyard_api.events import Event, EventId
from runyard_api.internal import GraphSchemas, HistoryQuery, RunError, RunHeld, RunStart, StateQuery, StatusMessage
from runyard_api.internal import StateUpdate as Update
from runyard_api.states import CancelAction, RunState
from runyard_cli.embedded.board import Entry
from runyard_cli.embedded.dispatcher import Dispatcher
from runyard_cli.embedded.report import Started
from runyard_clients.runtime import StartAnswer
from runyard_gateway.ports import AgentView, RunStatus
from runyard_store.runs import RunRow

Item = TypeVar("Item")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = AgentView("local", ("graph",), True, NOW)


def row(run_id: str, sequence: int = 1, thread: str = "t", **changes: Any) -> RunRow:
    return run_row(run_id=run_id, thread_id=thread, sequence=sequence, agent_name="local", **changes)


class FakeRows:
    def __init__(self, *rows: RunRow) -> None:
        self.rows = {one.run_id: one for one in rows}
        self.ended: dict[str, tuple[RunState, RunError | None]] = {}
        self.rolled_back: list[str] = []

    async def get(self, run_id: str) -> RunRow:
        if run_id not in self.rows:
            raise NotFound("no such run")
        return self.rows[run_id]

    async def unfinished(self) -> Sequence[RunRow]:
        return [one for one in self.rows.values() if not one.status.finished]

    async def finish(self, run_id: str, state: RunState, error: RunError | None) -> RunRow | None:
        self.ended[run_id] = (state, error)
        body = error.model_dump() if error else None
        return row(run_id, status=state, error=body)

    async def roll_back(self, run_id: str) -> None:
        self.rolled_back.append(run_id)


class FakeRuntime:
    """Takes every run unless `refusals` holds an error for it, which is then raised once."""

    def __init__(self, slots: int = 10) -> None:
        self.slots = slots
        self.started: asyncio.Queue[tuple[str, RunStart]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[tuple[str, CancelAction, str]] = asyncio.Queue()
        self.acked: asyncio.Queue[str] = asyncio.Queue()
        self.messages: asyncio.Queue[StatusMessage | None] = asyncio.Queue()
        self.refusals: dict[str, RunyardError] = {}
        self.say("snapshot")

    def say(self, kind: Any, *runs: RunHeld) -> None:
        self.messages.put_nowait(StatusMessage(kind=kind, boot_id="b", slots=self.slots, busy=0, runs=runs))

    def ends(self, run_id: str, state: RunState = RunState.SUCCESS, attempt: int = 1, **more: Any) -> None:
        self.say("run", RunHeld(run_id=run_id, thread_id="t", attempt=attempt, state=state, **more))

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer:
        if refusal := self.refusals.pop(run_id, None):
            raise refusal
        self.started.put_nowait((run_id, start))
        held = RunHeld(run_id=run_id, thread_id=start.thread_id, attempt=start.attempt, state=RunState.RUNNING)
        return StartAnswer(True, held)

    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None:
        self.cancelled.put_nowait((run_id, action, reason))

    async def ack(self, run_id: str) -> None:
        self.acked.put_nowait(run_id)

    async def status(self) -> AsyncGenerator[StatusMessage, None]:
        while (message := await self.messages.get()) is not None:
            yield message
        raise Unavailable("the stream broke")

    def event_batches(
        self, run_id: str, after: EventId | None = None, *, live: bool = False
    ) -> AsyncGenerator[list[Event], None]:
        raise NotImplementedError

    async def state(self, thread_id: str, query: StateQuery) -> dict[str, Any]:
        raise NotImplementedError

    async def history(self, thread_id: str, query: HistoryQuery) -> list[dict[str, Any]]:
        raise NotImplementedError

    async def update(self, thread_id: str, update: Update) -> dict[str, Any]:
        raise NotImplementedError

    async def schemas(self, graph_id: str) -> GraphSchemas:
        raise NotImplementedError


class SilentReport:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def started(self, started: Started) -> None: ...

    def stopping(self) -> None: ...

    def request(self, method: str, path: str, status: int, seconds: float) -> None: ...

    def run_started(self, run: Entry) -> None:
        self.lines.append((run.run_id, "started"))

    def run_ended(self, run: Entry, seconds: float | None) -> None:
        self.lines.append((run.run_id, run.state.value))


@asynccontextmanager
async def running(
    runtime: FakeRuntime, rows: FakeRows | None = None, report: SilentReport | None = None
) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(rows=rows or FakeRows(), runtime=runtime, agent=AGENT, report=report or SilentReport())
    await dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


async def soon(queue: asyncio.Queue[Item]) -> Item:
    return await asyncio.wait_for(queue.get(), 2)


async def states(dispatcher: Dispatcher, run_id: str) -> list[RunState]:
    """All states that a watcher sees from now to the end."""
    async with asyncio.timeout(2), dispatcher.watch(run_id) as statuses:
        return [status.state async for status in statuses]


async def test_a_submitted_run_goes_to_the_runtime_as_attempt_one_and_is_acknowledged_at_its_end() -> None:
    runtime, report = FakeRuntime(), SilentReport()
    async with running(runtime, report=report) as dispatcher:
        await dispatcher.submit(row("a"))
        assert await soon(runtime.started) == (
            "a",
            RunStart(thread_id="t", graph_id="graph", attempt=1, active_deadline_seconds=86_400),
        )
        watcher = asyncio.create_task(states(dispatcher, "a"))
        await asyncio.sleep(0)
        runtime.ends("a")
        assert (await watcher)[-1] is RunState.SUCCESS
        assert await soon(runtime.acked) == "a"
    assert report.lines == [("a", "started"), ("a", "success")]


async def test_a_run_that_killed_the_process_three_times_ends_instead_of_a_fourth() -> None:
    runtime, rows = FakeRuntime(), FakeRows(row("a", 1, attempt=3, failures=3), row("b", 2, attempt=2, failures=2))
    async with running(runtime, rows):
        assert await soon(runtime.started) == (
            "b",
            RunStart(thread_id="t", graph_id="graph", attempt=3, active_deadline_seconds=86_400),
        )
    state, error = rows.ended["a"]
    assert (state, error and error.error) == (RunState.ERROR, "TooManyFailures")


async def test_a_watcher_sees_the_endpoint_while_the_runtime_holds_the_run() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a"))
        async with asyncio.timeout(2), dispatcher.watch("a") as statuses:
            seen = [await anext(statuses), await anext(statuses)]
    assert seen == [RunStatus(RunState.PENDING), RunStatus(RunState.RUNNING, 1, runtime)]


async def test_runs_of_one_thread_go_one_after_the_other() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a", 1))
        await dispatcher.submit(row("b", 2))
        assert (await soon(runtime.started))[0] == "a"
        assert runtime.started.empty()
        runtime.ends("a")
        assert (await soon(runtime.started))[0] == "b"


async def test_without_a_free_slot_threads_wait_in_order() -> None:
    runtime = FakeRuntime(slots=1)
    async with running(runtime) as dispatcher:
        for name in ("a", "b", "c"):
            await dispatcher.submit(row(name, thread=name))
            await asyncio.sleep(0)
        order = [(await soon(runtime.started))[0]]
        for _ in range(2):
            runtime.ends(order[-1])
            order.append((await soon(runtime.started))[0])
    assert order == ["a", "b", "c"]


async def test_a_runtime_without_slot_is_asked_again_at_its_next_word() -> None:
    runtime = FakeRuntime()
    runtime.refusals["a"] = NoSlot("full")
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a"))
        await asyncio.sleep(0.01)
        assert runtime.started.empty()
        runtime.say("beat")
        assert (await soon(runtime.started))[1].attempt == 1


async def test_an_unanswered_start_is_repeated_with_the_same_attempt() -> None:
    runtime = FakeRuntime()
    runtime.refusals["a"] = Unavailable("no answer")
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a"))
        assert (await soon(runtime.started))[1].attempt == 1


async def test_a_stale_attempt_is_repeated_above_what_the_row_says() -> None:
    runtime, rows = FakeRuntime(), FakeRows()
    runtime.refusals["a"] = Stale("attempt 3 has been")
    async with running(runtime, rows) as dispatcher:
        rows.rows["a"] = row("a", attempt=3, status=RunState.RUNNING)
        await dispatcher.submit(row("a"))
        assert (await soon(runtime.started))[1].attempt == 4


async def test_a_start_that_is_refused_for_good_ends_the_run_with_the_reason() -> None:
    runtime, rows = FakeRuntime(), FakeRows()
    runtime.refusals["a"] = Invalid("Graph 'graph' not found.")
    async with running(runtime, rows) as dispatcher:
        await dispatcher.submit(row("a"))
        assert (await states(dispatcher, "a"))[-1] is RunState.ERROR
    assert rows.ended["a"] == (RunState.ERROR, RunError(error="Invalid", message="Graph 'graph' not found."))


async def test_the_next_start_takes_up_unfinished_runs_with_the_next_attempt() -> None:
    runtime = FakeRuntime()
    async with running(runtime, FakeRows(row("a", attempt=1, status=RunState.RUNNING), row("b", thread="u"))):
        started = dict([await soon(runtime.started), await soon(runtime.started)])
    assert {name: start.attempt for name, start in started.items()} == {"a": 2, "b": 1}


async def test_a_run_missing_from_a_new_snapshot_is_lost_and_tried_again() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a"))
        assert (await soon(runtime.started))[1].attempt == 1
        await asyncio.sleep(0)
        runtime.messages.put_nowait(None)
        runtime.say("snapshot")
        assert (await soon(runtime.started))[1].attempt == 2


async def test_an_attempt_that_the_runtime_gives_up_is_followed_by_the_next() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a"))
        assert (await soon(runtime.started))[1].attempt == 1
        runtime.ends("a", RunState.RUNNING, given_up="drained")
        assert (await soon(runtime.started))[1].attempt == 2


async def test_a_cancel_reaches_the_runtime_once() -> None:
    runtime = FakeRuntime()
    async with running(runtime) as dispatcher:
        await dispatcher.submit(row("a"))
        await soon(runtime.started)
        await dispatcher.cancel(row("a"), CancelAction.INTERRUPT, "stop button")
        assert await soon(runtime.cancelled) == ("a", CancelAction.INTERRUPT, "stop button")
        await dispatcher.cancel(row("a"), CancelAction.INTERRUPT, "stop button")
        await asyncio.sleep(0.01)
        assert runtime.cancelled.empty()


async def test_a_cancelled_run_that_waits_is_ended_without_the_runtime() -> None:
    runtime, rows = FakeRuntime(), FakeRows()
    async with running(runtime, rows) as dispatcher:
        await dispatcher.submit(row("a", 1))
        await dispatcher.submit(row("b", 2))
        await soon(runtime.started)
        await dispatcher.cancel(row("b", 2), CancelAction.INTERRUPT, "")
        assert (await states(dispatcher, "b"))[-1] is RunState.INTERRUPTED
    assert rows.ended == {"b": (RunState.INTERRUPTED, None)}


async def test_a_waiting_run_that_is_rolled_back_vanishes() -> None:
    runtime, rows = FakeRuntime(), FakeRows()
    async with running(runtime, rows) as dispatcher:
        await dispatcher.submit(row("a", 1))
        await dispatcher.submit(row("b", 2))
        await soon(runtime.started)
        await dispatcher.cancel(row("b", 2), CancelAction.ROLLBACK, "")
        assert await states(dispatcher, "b") in ([RunState.PENDING], [])
    assert rows.rolled_back == ["b"]


async def test_watching_a_run_that_has_ended_gives_what_its_row_says() -> None:
    rows = FakeRows(row("a", status=RunState.ERROR, attempt=2, error={"error": "ValueError", "message": "no"}))
    async with running(FakeRuntime(), rows) as dispatcher, dispatcher.watch("a") as statuses:
        assert [status async for status in statuses] == [
            RunStatus(RunState.ERROR, 2, error=RunError(error="ValueError", message="no"))
        ]


async def test_watching_an_unknown_run_ends_at_once() -> None:
    async with running(FakeRuntime()) as dispatcher:
        assert await states(dispatcher, "nobody") == []


async def test_another_agent_is_not_found() -> None:
    async with running(FakeRuntime()) as dispatcher:
        with pytest.raises(NotFound):
            await dispatcher.endpoint("another")
