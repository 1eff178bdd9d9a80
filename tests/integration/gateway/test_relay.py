"""The relay when pods go away, attempts change and logs are missing: a real database, pods that follow a script."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from tests.support.store_rows import NOW, NOW_MS, claimed, finish_of, later, stored_run

from runyard_api.errors import NotFound, Unavailable
from runyard_api.events import Event, EventId
from runyard_api.internal import GraphSchemas, HistoryQuery, StateQuery, StateUpdate
from runyard_api.states import CancelAction, RunState
from runyard_gateway.following import finished_row
from runyard_gateway.handover import Handover
from runyard_gateway.ports import AgentEndpoint, AgentView, RunStatus
from runyard_gateway.relay import Relay
from runyard_gateway.render import Renderer, Wanted
from runyard_gateway.streaming import Sink
from runyard_store import event_log
from runyard_store.database import Database
from runyard_store.deletion import RemovedRun, delete_idle_thread
from runyard_store.finish import finish_run
from runyard_store.leases import Claim
from runyard_store.runs import RunRow, delete_run, finish_unheld, get_run


def event(n: int, attempt: int = 1, mode: str = "values") -> Event:
    return Event(EventId.of(NOW_MS, attempt, n), mode, (), b"%d" % n)


class Pod:
    """An agent pod that holds one run. `events` are there; then it breaks off, or stays silent for ever."""

    def __init__(self, *events: Event, then: str = "ends") -> None:
        self.events, self.then = events, then
        self.asked: list[tuple[EventId | None, bool]] = []
        self.connected = asyncio.Event()

    async def event_batches(
        self, run_id: str, after: EventId | None = None, *, live: bool = False
    ) -> AsyncGenerator[list[Event], None]:
        self.asked.append((after, live))
        self.connected.set()
        if self.then == "knows nothing":
            raise NotFound("no such run")
        if new := [e for e in self.events if after is None or e.id > after]:
            yield new
        if self.then == "breaks":
            raise Unavailable("gone")
        if self.then == "hangs":
            await asyncio.Event().wait()

    async def state(self, thread_id: str, query: StateQuery) -> dict[str, Any]:
        raise Unavailable("not here")

    async def history(self, thread_id: str, query: HistoryQuery) -> list[dict[str, Any]]:
        raise Unavailable("not here")

    async def update(self, thread_id: str, update: StateUpdate) -> dict[str, Any]:
        raise Unavailable("not here")

    async def schemas(self, graph_id: str) -> GraphSchemas:
        raise Unavailable("not here")


class Script:
    """Runs whose statuses the test says; `refusals` is how often submit and cancel fail first."""

    def __init__(self, refusals: int = 0) -> None:
        self.statuses: asyncio.Queue[RunStatus | None] = asyncio.Queue()
        self.refusals = refusals
        self.submitted: list[str] = []
        self.cancelled: list[CancelAction] = []
        self.done = asyncio.Event()

    def says(self, *statuses: RunStatus | None) -> None:
        """None: the run vanishes."""
        for status in statuses:
            self.statuses.put_nowait(status)

    async def submit(self, run: RunRow) -> None:
        self._refuse()
        self.submitted.append(run.run_id)
        self.done.set()

    async def cancel(self, run: RunRow, action: CancelAction, reason: str) -> None:
        self._refuse()
        self.cancelled.append(action)
        self.done.set()

    async def remove(self, run: RemovedRun) -> None:
        self._refuse()

    @asynccontextmanager
    async def watch(self, run_id: str) -> AsyncIterator[AsyncIterator[RunStatus]]:
        async def statuses() -> AsyncIterator[RunStatus]:
            while (status := await self.statuses.get()) is not None:
                yield status
                if status.state.finished:
                    return

        yield statuses()

    def agents(self) -> Sequence[AgentView]:
        return ()

    async def endpoint(self, agent_name: str) -> AgentEndpoint:
        raise NotFound("no agent")

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("not now")


def on(pod: Pod, attempt: int = 1) -> RunStatus:
    return RunStatus(RunState.RUNNING, attempt, pod)


async def read(
    db: Database, script: Script, run: RunRow, *, after: EventId | None = None, live: bool = False, **asked: Any
) -> list[tuple[str, Any]]:
    """The frames of one reader, as (event, data)."""
    sink, parts = Sink(), []

    async def send(message: Any) -> None:
        parts.append(message["body"])

    relay = Relay(db, script, run, Renderer(Wanted.of(asked.get("modes", ()), ())), after=after, live=live)
    draining = asyncio.create_task(sink.drain(send))
    async with asyncio.timeout(10):
        await relay.pump(sink)
    sink.close()
    await draining
    blocks = b"".join(parts).split(b"\r\n\r\n")[:-1]
    lines = [block.split(b"\r\n") for block in blocks]
    return [(event[7:].decode(), orjson.loads(data[6:])) for event, data, *_ in lines]


async def finished(db: Database, claim: Claim, *events: Event) -> None:
    await finish_run(db, finish_of(claim, last_events=list(events)))


VALUES = [("values", n) for n in range(10)]
END = ("end", 9)
TAIL = event(9, mode="end")


async def test_events_go_from_the_pod_to_the_reader_until_the_end(db: Database) -> None:
    run, script = await stored_run(db), Script()
    pod = Pod(event(1), event(2), TAIL, then="hangs")
    script.says(RunStatus(RunState.PENDING), on(pod))
    assert await read(db, script, run) == [VALUES[1], VALUES[2], END]
    assert pod.asked == [(None, False)]


async def test_a_broken_connection_is_taken_up_after_the_last_event(db: Database) -> None:
    run, script = await stored_run(db), Script()
    pod = Pod(event(1), event(2), then="breaks")
    script.says(on(pod))
    reading = asyncio.create_task(read(db, script, run))
    await pod.connected.wait()
    pod.events, pod.then = (event(1), event(2), event(3), TAIL), "ends"
    assert await reading == [VALUES[1], VALUES[2], VALUES[3], END]
    assert pod.asked == [(None, False), (event(2).id, False)]


async def test_a_new_attempt_is_read_from_its_pod_while_the_old_one_hangs(db: Database) -> None:
    run, script = await stored_run(db), Script()
    old, new = Pod(event(1), event(2), then="hangs"), Pod(event(1, 2), event(9, 2, "end"), then="hangs")
    script.says(on(old))
    reading = asyncio.create_task(read(db, script, run))
    await old.connected.wait()
    script.says(RunStatus(RunState.RUNNING, 1), on(new, 2))
    assert await reading == [VALUES[1], VALUES[2], VALUES[1], END]
    assert new.asked == [(event(2).id, False)]


async def test_events_of_an_older_attempt_are_dropped_once_a_newer_one_was_seen(db: Database) -> None:
    run, script = await stored_run(db), Script()
    script.says(on(Pod(event(1, 2), event(5, 1), event(2, 2), event(9, 2, "end"))))
    assert await read(db, script, run) == [VALUES[1], VALUES[2], END]


async def test_a_run_that_finished_while_its_pod_was_gone_is_told_from_the_log(db: Database) -> None:
    run, script = await stored_run(db), Script()
    claim = await claimed(db, run)
    pod = Pod(event(1), then="breaks")
    script.says(on(pod))
    reading = asyncio.create_task(read(db, script, run))
    await pod.connected.wait()
    await event_log.append(db, run.run_id, run.thread_id, claim.epoch, [event(1), event(2)])
    await finished(db, claim, event(3), TAIL)
    script.says(RunStatus(RunState.SUCCESS, 1))
    assert await reading == [VALUES[1], VALUES[2], VALUES[3], END]


async def test_a_pod_that_forgot_the_run_doesnt_hide_that_it_finished(db: Database) -> None:
    run, script = await stored_run(db), Script()
    await finished(db, await claimed(db, run), event(1), TAIL)
    script.says(on(Pod(then="knows nothing")))
    assert await read(db, script, run) == [VALUES[1], END]


async def test_a_finished_run_is_read_from_the_log_without_asking_anybody(db: Database) -> None:
    run = await stored_run(db)
    await finished(db, await claimed(db, run), event(1), event(2), TAIL)
    row = await get_run(db, run.run_id)
    assert await read(db, Script(), row) == [VALUES[1], VALUES[2], END]
    assert await read(db, Script(), row, after=event(1).id) == [VALUES[2], END]
    assert await read(db, Script(), row, live=True) == []


async def test_a_run_that_no_pod_ever_held_is_told_from_its_row(db: Database) -> None:
    run, script = await stored_run(db), Script()
    error = {"error": "AgentNotReady", "message": "ImagePullFailed: no such image"}
    await finish_unheld(db, run.run_id, RunState.ERROR, error, later(1))
    script.says(RunStatus(RunState.ERROR))
    want = [("metadata", {"run_id": run.run_id, "attempt": 1}), ("error", error), ("end", None)]
    assert await read(db, script, run) == want
    assert await read(db, Script(), await get_run(db, run.run_id)) == want


async def test_a_run_that_was_rolled_back_just_ends(db: Database) -> None:
    run, script = await stored_run(db), Script()
    pod = Pod(event(1), then="hangs")
    script.says(on(pod))
    reading = asyncio.create_task(read(db, script, run))
    await pod.connected.wait()
    await delete_run(db, run.run_id, NOW)
    pod.then = "ends"
    script.says(None)
    assert await reading == [VALUES[1], ("end", None)]


async def test_a_reader_that_is_slower_than_the_deletion_of_a_finished_run_is_told(db: Database) -> None:
    run = await stored_run(db)
    await finished(db, await claimed(db, run), event(1), TAIL)
    row = await get_run(db, run.run_id)
    await delete_idle_thread(db, run.thread_id)
    [(name, body), end] = await read(db, Script(), row)
    assert (name, body["error"], end) == ("error", "Deleted", ("end", None))


async def test_a_live_reader_asks_for_live_events_and_after_a_break_for_what_it_missed(db: Database) -> None:
    run, script = await stored_run(db), Script()
    pod = Pod(event(7), then="breaks")
    script.says(on(pod))
    reading = asyncio.create_task(read(db, script, run, live=True))
    await pod.connected.wait()
    pod.events, pod.then = (event(7), event(8), TAIL), "ends"
    assert await reading == [VALUES[7], VALUES[8], END]
    assert pod.asked == [(None, True), (event(7).id, False)]


async def test_a_live_reader_of_a_run_that_ends_meanwhile_gets_the_end_alone(db: Database) -> None:
    run, script = await stored_run(db), Script()
    pod = Pod(then="hangs")
    script.says(on(pod))
    reading = asyncio.create_task(read(db, script, run, live=True))
    await pod.connected.wait()
    await finished(db, await claimed(db, run), event(1), TAIL)
    pod.then = "ends"
    script.says(RunStatus(RunState.SUCCESS, 1))
    assert await reading == [("end", None)]


async def test_a_resumed_reader_of_legacy_messages_gets_them_accumulated_from_the_start(db: Database) -> None:
    run, script = await stored_run(db), Script()
    chunks = [
        Event(event(n).id, "messages", (), b'[{"type":"AIMessageChunk","id":"m","content":"%d"},{}]' % n)
        for n in (1, 2, 3)
    ]
    pod = Pod(*chunks, TAIL)
    script.says(on(pod))
    frames = await read(db, script, run, after=event(2).id, modes=["messages"])
    assert [(name, body[0]["content"]) for name, body in frames[:-1]] == [("messages/partial", "123")]
    assert pod.asked == [(None, False)]


async def test_waiting_ends_with_the_final_row_or_none_for_a_removed_run(db: Database) -> None:
    run, script = await stored_run(db), Script()
    waiting = asyncio.create_task(finished_row(db, script, run.run_id))
    script.says(RunStatus(RunState.PENDING), RunStatus(RunState.RUNNING, 1))
    await finished(db, await claimed(db, run), TAIL)
    script.says(RunStatus(RunState.SUCCESS, 1))
    row = await waiting
    assert row is not None
    assert row.result == {"answer": 42}
    await delete_run(db, run.run_id, NOW)
    script.says(None)
    assert await finished_row(db, script, run.run_id) is None


async def test_a_committed_run_is_handed_over_again_until_it_is_taken(db: Database) -> None:
    run, script = await stored_run(db), Script(refusals=2)
    handover = Handover(db, script)
    handover.submit(run)
    async with asyncio.timeout(5):
        await script.done.wait()
    await handover.close()
    assert script.submitted == [run.run_id]


async def test_a_cancel_is_written_down_before_it_is_passed_on_and_never_weakened(db: Database) -> None:
    run, script = await stored_run(db), Script()
    handover = Handover(db, script)
    await handover.cancel(run, CancelAction.ROLLBACK, "why")
    handover.cancel_soon(run)
    async with asyncio.timeout(5):
        while len(script.cancelled) < 2:
            script.done.clear()
            await script.done.wait()
    await handover.close()
    assert script.cancelled == [CancelAction.ROLLBACK, CancelAction.ROLLBACK]
    row = await get_run(db, run.run_id)
    assert row.cancel_action is CancelAction.ROLLBACK


async def test_a_finished_run_is_not_cancelled(db: Database) -> None:
    run, script = await stored_run(db), Script()
    await finish_unheld(db, run.run_id, RunState.SUCCESS, None, later(1))
    await Handover(db, script).cancel(run, CancelAction.INTERRUPT, "")
    assert script.cancelled == []
