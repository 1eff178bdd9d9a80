"""Starting, refusing, cancelling, draining, fencing, and what the status stream says of it."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.integration.runtime.harness import Pod, started_pod

from runyard_api.errors import Draining, Early, Held, NoSlot, NotFound, OldLeader
from runyard_api.internal import RunHeld, RunStart, StateUpdate, StatusMessage
from runyard_api.states import CancelAction, RunState, ThreadState
from runyard_clients.runtime import SOCKET_BASE_URL, RuntimeClient, socket_http
from runyard_store.runs import get_run


async def _hear(pod: Pod, run_id: str, *, over: bool = True) -> RunHeld:
    """Waits on the status stream until it says that the run is over, or anything of it."""
    return await _first_of(pod.client.status(), run_id, over=over)


async def _hear_from_now(pod: Pod, run_id: str) -> asyncio.Task[RunHeld]:
    """Listens from the next snapshot on for the run's end: a run that is given up isn't in any later snapshot."""
    messages = pod.client.status()
    assert run_id in {run.run_id for run in (await anext(messages)).runs}
    return asyncio.create_task(_first_of(messages, run_id, over=True))


async def _first_of(messages: AsyncGenerator[StatusMessage, None], run_id: str, *, over: bool) -> RunHeld:
    async with aclosing(messages):
        async for message in messages:
            for run in message.runs:
                if run.run_id == run_id and (not over or run.state.finished or run.given_up):
                    return run
    raise AssertionError("the status stream ended")


async def test_a_failing_node_ends_the_run_in_error(pod: Pod) -> None:
    ended = await pod.run("failing", input={"log": []})
    assert ended.modes[-2:] == ["error", "end"]
    assert ended.data("error") == [{"error": "ValueError", "message": "no such thing"}]
    assert (ended.run.status, ended.run.error) == (RunState.ERROR, ended.data("error")[0])
    assert (ended.thread.status, ended.thread.values["log"]) == (ThreadState.ERROR, ["a"])
    assert ended.thread.head is not None
    assert ended.thread.head["next"] == ["fail"]


async def test_the_recursion_limit_of_a_run_and_the_default_one(pod: Pod) -> None:
    ended = await pod.run("looping", input={"log": []}, config={"recursion_limit": 4})
    assert ended.run.error is not None
    assert ended.run.error["error"] == "GraphRecursionError"
    assert len(ended.thread.values["log"]) == 4
    ended = await pod.run("looping", input={"log": []})
    assert len(ended.thread.values["log"]) == pod.settings.recursion_limit


async def test_an_unknown_graph_ends_the_run_in_error(pod: Pod) -> None:
    ended = await pod.run("nothing", input={})
    assert ended.run.error is not None
    assert "Graph 'nothing' not found. Expected one of" in ended.run.error["message"]


async def test_a_repeated_start_finds_the_run_already_there(pod: Pod) -> None:
    run = await pod.create("sleeper", input={"log": []})
    answers = await asyncio.gather(*(pod.start(run) for _ in range(5)))
    assert sorted(answer.started for answer in answers).count(True) >= 1
    assert {answer.run.state for answer in answers} == {RunState.RUNNING}
    assert (await pod.client.ping()).busy == 1
    again = await pod.start(run)
    assert not again.started


async def test_a_leader_older_than_one_seen_is_refused(pod: Pod) -> None:
    run = await pod.create("steps", input={"log": []})
    async with socket_http(str(pod.socket)) as http:
        older, newer = (RuntimeClient(SOCKET_BASE_URL, token=None, http=http, term=term) for term in (4, 5))
        await older.ping()
        await newer.ping()
        start = RunStart(thread_id=run.thread_id, graph_id="steps", attempt=1)
        commands = (
            older.start_run(run.run_id, start),
            older.cancel(run.run_id, CancelAction.INTERRUPT),
            older.ack(run.run_id),
            older.ping(),
        )
        for refused in await asyncio.gather(*commands, return_exceptions=True):
            assert isinstance(refused, OldLeader)
        assert (await newer.start_run(run.run_id, start)).started


async def test_a_finished_run_is_never_executed_again(pod: Pod) -> None:
    ended = await pod.run("failing", input={"log": []})
    await pod.client.ack(ended.run.run_id)
    answer = await pod.start(ended.run, attempt=2)
    assert not answer.started
    assert answer.run.state is RunState.ERROR
    assert answer.run.error is not None


async def test_a_run_waits_for_the_earlier_one_of_its_thread(pod: Pod) -> None:
    first = await pod.create("sleeper", input={"log": []})
    await pod.start(first)
    second = await pod.create("steps", thread_id=first.thread_id, input={"log": []})
    with pytest.raises(Early):
        await pod.start(second)
    assert (await pod.client.ping()).busy == 1


async def test_no_more_runs_than_slots(pod: Pod) -> None:
    runs = [await pod.create("sleeper", input={"log": []}) for _ in range(5)]
    for run in runs[:4]:
        await pod.start(run)
    with pytest.raises(NoSlot):
        await pod.start(runs[4])
    await pod.client.cancel(runs[0].run_id, CancelAction.INTERRUPT)
    await _hear(pod, runs[0].run_id)
    assert (await pod.start(runs[4])).started


async def test_a_pod_takes_as_many_runs_as_it_may_and_says_how_many_are_left(database_url: str, tmp_path: Path) -> None:
    async with started_pod(database_url, tmp_path, max_runs=2) as pod:
        assert (await pod.client.ping()).left == 2
        first = await pod.create("sleeper", input={"log": []})
        await pod.start(first)
        assert (await pod.client.ping()).left == 1
        unknown = RunStart(thread_id="t", graph_id="g", attempt=1)
        with pytest.raises(NotFound):
            await pod.client.start_run(str(uuid.uuid4()), unknown)
        assert (await pod.client.ping()).left == 1, "a claim that fails takes nothing"
        await pod.run("steps", input={"log": []})
        with pytest.raises(Draining):
            await pod.start(await pod.create("steps", input={"log": []}))
        assert not (await pod.start(first)).started
        heard = await pod.client.ping()
        assert (heard.left, heard.busy, heard.draining) == (0, 1, False)


async def test_a_cancelled_run_keeps_its_state_and_ends_without_an_error_event(pod: Pod) -> None:
    run = await pod.create("sleeper", input={"log": []}, stream_mode=["updates"])
    await pod.start(run)
    await pod.until_event(run, "updates", b'"a"')
    await pod.client.cancel(run.run_id, CancelAction.INTERRUPT)
    ended = await pod.end_of(run)
    assert ended.modes == ["metadata", "updates", "end"]
    assert ended.data("end") == [{"status": "interrupted"}]
    assert (ended.run.status, ended.run.error) == (RunState.INTERRUPTED, None)
    assert (ended.thread.status, ended.thread.values["log"]) == (ThreadState.INTERRUPTED, ["a"])
    assert (await pod.state(run))["next"] == ["sleep"]
    with pytest.raises(NotFound):
        await pod.client.cancel(run.run_id, CancelAction.INTERRUPT)


async def test_a_cancelled_run_in_sync_code_ends_when_that_has_ended(pod: Pod) -> None:
    run = await pod.create("sync_sleeper", input={"log": []}, stream_mode=["custom"])
    await pod.start(run)
    await pod.until_event(run, "custom")
    begun = asyncio.get_running_loop().time()
    await pod.client.cancel(run.run_id, CancelAction.INTERRUPT)
    ended = await pod.end_of(run)
    assert ended.run.status is RunState.INTERRUPTED
    assert 0.2 < asyncio.get_running_loop().time() - begun < 2.0


async def test_a_rollback_leaves_neither_run_nor_its_state(pod: Pod) -> None:
    before = await pod.run("ask", input={"log": ["0"]})
    run = await pod.create("sleeper", thread_id=before.run.thread_id, input={"log": ["1"]}, stream_mode=["updates"])
    await pod.start(run)
    await pod.until_event(run, "updates")
    await pod.client.cancel(run.run_id, CancelAction.ROLLBACK)
    heard = await _hear(pod, run.run_id)
    assert heard.rolled_back
    with pytest.raises(NotFound):
        await get_run(pod.db, run.run_id)
    state = await pod.state(before.run)
    assert (state["values"]["log"], state["next"]) == (["0"], ["ask"])
    assert state["checkpoint_id"] == before.thread.head["checkpoint_id"]  # type: ignore[index]


async def test_a_blocked_graph_loop_silences_neither_health_nor_status_nor_events(pod: Pod) -> None:
    run = await pod.create("blocker", input={"log": []}, stream_mode=["tasks"])
    await pod.start(run)
    beats: list[StatusMessage] = []
    clock = asyncio.get_running_loop().time
    begun = clock()
    async for event in pod.client.events(run.run_id):
        if event.mode == "tasks":
            break
    ping = await pod.client.ping()
    assert (ping.busy, clock() - begun < 0.6) == (1, True)
    async for message in pod.client.status():
        beats.append(message)
        if len(beats) == 2:
            break
    assert clock() - begun < 1.9
    assert (await pod.end_of(run)).run.status is RunState.SUCCESS


async def test_the_status_stream_tells_a_run_until_it_is_acknowledged(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []})
    for _ in range(2):
        snapshot = await anext(pod.client.status())
        assert [(r.run_id, r.state) for r in snapshot.runs] == [(ended.run.run_id, RunState.SUCCESS)]
        assert (snapshot.kind, snapshot.slots, snapshot.busy) == ("snapshot", 4, 0)
    await pod.client.ack(ended.run.run_id)
    assert (await anext(pod.client.status())).runs == ()
    assert [event async for event in pod.client.events(ended.run.run_id)] == ended.events


async def test_a_newer_attempt_elsewhere_fences_the_old_one(pod: Pod, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run = await pod.create("gated", input={"log": [], "gate": str(gate)}, stream_mode=["updates"])
    await pod.start(run)
    await pod.until_event(run, "updates", b'"a"')
    await pod.until_logged(run)
    hearing = await _hear_from_now(pod, run.run_id)
    async with started_pod(pod.settings.database_url, tmp_path) as other:
        assert (await other.start(run, attempt=2)).started
        gate.touch()
        heard = await hearing
        ended = await other.end_of(run)
        assert (heard.given_up, heard.state) == ("fenced", RunState.RUNNING)
        assert (await anext(pod.client.status())).runs == ()
    assert (ended.run.status, ended.run.attempt) == (RunState.SUCCESS, 2)
    assert ended.thread.values["log"] == ["a", "through", "z"]
    resumed = ended.data("metadata")[-1]
    assert (resumed["attempt"], resumed["resumed_step"]) == (2, 1)
    ids = [event.id for event in ended.events]
    assert ids == sorted(set(ids))
    assert {event_id.attempt for event_id in ids} == {1, 2}


async def test_an_attempt_without_a_checkpoint_of_its_own_starts_as_the_first_did(pod: Pod, tmp_path: Path) -> None:
    run = await pod.create("gated", input={"log": [], "gate": str(tmp_path / "gate")}, durability="exit")
    await pod.start(run)
    async with started_pod(pod.settings.database_url, tmp_path) as other:
        await other.start(run, attempt=2)
        (tmp_path / "gate").touch()
        ended = await other.end_of(run)
    assert ended.thread.values["log"] == ["a", "through", "z"]
    assert ended.data("metadata")[-1] == {"run_id": run.run_id, "attempt": 2}


async def test_a_draining_pod_hands_its_runs_over_at_a_step_boundary(database_url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with started_pod(database_url, tmp_path, drain_seconds=10.0) as pod:
        run = await pod.create("gated", input={"log": [], "gate": str(gate)}, stream_mode=["updates"])
        await pod.start(run)
        await pod.until_event(run, "updates", b'"a"')
        hearing = await _hear_from_now(pod, run.run_id)
        draining = asyncio.create_task(pod.runtime.drain())
        await asyncio.sleep(0)
        with pytest.raises(Draining):
            await pod.start(await pod.create("steps", input={}))
        gate.touch()
        assert (await hearing).given_up == "drained"
        await draining
        async with started_pod(database_url, tmp_path) as other:
            assert (await other.start(run, attempt=2)).started
            ended = await other.end_of(run)
    assert ended.thread.values["log"] == ["a", "through", "z"]
    assert sum(b'"through"' in e.data for e in ended.events if e.mode == "updates") == 1


async def test_a_run_that_is_held_keeps_state_updates_out(pod: Pod) -> None:
    run = await pod.create("sleeper", input={"log": []})
    await pod.start(run)
    with pytest.raises(Held):
        await pod.client.update(run.thread_id, StateUpdate(graph_id="sleeper", values={"log": ["x"]}))


async def test_a_start_of_an_unknown_run_is_refused(pod: Pod) -> None:
    with pytest.raises(NotFound):
        await pod.client.start_run(str(uuid.uuid4()), RunStart(thread_id="t", graph_id="g", attempt=1))


async def test_a_run_past_its_deadline_ends_as_timeout_with_a_plain_error_and_its_state(pod: Pod) -> None:
    run = await pod.create("sleeper", input={"log": []})
    await pod.start(run, deadline=1)
    ended = await pod.end_of(run)
    error = {"error": "DeadlineExceeded", "message": "the run took longer than the 1 s it may take"}
    assert ended.modes[-2:] == ["error", "end"]
    assert (ended.data("error"), ended.data("end")) == ([error], [{"status": "timeout"}])
    assert (ended.run.status, ended.run.error, ended.thread.status) == (RunState.TIMEOUT, error, ThreadState.ERROR)
    assert (await pod.client.ping()).busy == 0


async def test_a_deadline_counts_from_the_first_attempt(pod: Pod) -> None:
    run = await pod.create("sleeper", input={"log": []})
    await pod.start(run, deadline=2)
    await pod.start(run, attempt=2, deadline=2)
    ended = await pod.end_of(run)
    assert ended.run.status is RunState.TIMEOUT
    assert ended.run.started_at is not None
    assert ended.run.ended_at is not None
    assert (ended.run.ended_at - ended.run.started_at).total_seconds() < 3.5


async def test_a_cancel_before_the_deadline_is_a_cancel(pod: Pod) -> None:
    run = await pod.create("sleeper", input={"log": []})
    await pod.start(run, deadline=3600)
    await pod.client.cancel(run.run_id, CancelAction.INTERRUPT)
    assert (await pod.end_of(run)).run.status is RunState.INTERRUPTED
