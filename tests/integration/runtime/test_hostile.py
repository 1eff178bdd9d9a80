"""Graphs and requests that misbehave: their run ends with an error of its own, and the next run works."""

import uuid
from typing import Any

import pytest
from tests.integration.runtime.harness import Ended, Pod

from runyard_api.errors import BadRequest, NotFound
from runyard_api.internal import HistoryQuery, StateUpdate
from runyard_api.payload import Command, Send
from runyard_api.states import CancelAction, RunState, ThreadState

ERRORS = {
    "base_exception": {"error": "BaseException", "message": "not an Exception"},
    "system_exit": {"error": "SystemExit", "message": "3"},
    "exit_in_parallel": {"error": "SystemExit", "message": "3"},
    "interrupt_in_thread": {"error": "KeyboardInterrupt", "message": "KeyboardInterrupt"},
    "cancels_itself": {"error": "NodeCancelledError", "message": "Node 'only' raised asyncio.CancelledError"},
    "unsayable": {"error": "_Unsayable", "message": "_Unsayable"},
    "half_a_character": {"error": "ValueError", "message": "a?b?c"},
}


@pytest.mark.parametrize("graph", ERRORS)
async def test_whatever_a_node_raises_is_its_runs_error_and_no_other_runs(pod: Pod, graph: str) -> None:
    ended = await pod.run(graph, input={"log": []})
    assert ended.modes[-2:] == ["error", "end"]
    assert (ended.run.status, ended.run.error) == (RunState.ERROR, ERRORS[graph])
    assert pod.runtime.registry.busy == 0
    after = await pod.run("steps", input={"log": []})
    assert after.thread.values["log"] == ["a", "b", "c"]


async def test_a_node_that_stops_the_loop_stops_nothing(pod: Pod) -> None:
    assert (await pod.run("stops_loop", input={"log": []})).thread.values["log"] == ["stopped"]
    assert (await pod.run("steps", input={"log": []})).run.status is RunState.SUCCESS


async def test_a_node_that_swallows_its_cancellation_is_the_last_one(pod: Pod) -> None:
    run = await pod.create("swallows_cancel", input={"log": []}, stream_mode=["values", "custom"])
    await pod.start(run)
    await pod.until_event(run, "custom")
    await pod.client.cancel(run.run_id, CancelAction.INTERRUPT)
    ended = await pod.end_of(run)
    assert ended.run.status is RunState.INTERRUPTED
    assert "went on" not in ended.thread.values["log"]


async def test_interrupts_of_parallel_nodes_come_together_and_are_answered_one_by_one(pod: Pod) -> None:
    ended = await pod.run("asks_twice", input={"log": []})
    asked = {one["value"]: one["id"] for one in ended.run.result["__interrupt__"]}
    assert set(asked) == {"a?", "b?"}
    assert ended.data("values")[-1] == ended.run.result
    thread_id = ended.run.thread_id
    one = await pod.run("asks_twice", thread_id=thread_id, command=Command(resume={asked["b?"]: "B"}))
    assert ([i["id"] for i in one.run.result["__interrupt__"]], one.thread.status) == (
        [asked["a?"]],
        ThreadState.INTERRUPTED,
    )
    both = await pod.run("asks_twice", thread_id=thread_id, command=Command(resume={asked["a?"]: "A"}))
    assert (both.thread.values["log"], both.thread.status) == (["A", "B"], ThreadState.IDLE)


REFUSED: dict[str, dict[str, Any]] = {
    "a goto": {"command": Command(goto="nope")},
    "a Send": {"command": Command(goto=[Send(node="nope")])},
    "a breakpoint": {"input": {"log": []}, "interrupt_before": ["nope"]},
    "a breakpoint after": {"input": {"log": []}, "interrupt_after": ["a", "nope"]},
}


@pytest.mark.parametrize("asked", REFUSED)
async def test_a_node_that_the_graph_lacks_ends_the_run_in_error(pod: Pod, asked: str) -> None:
    ended = await pod.run("steps", **REFUSED[asked])
    assert ended.run.error is not None
    assert ended.run.error["error"] == "UnknownNode"
    assert ended.run.error["message"].endswith("the graph has no node 'nope', only a, b, c")


async def test_a_command_that_says_nothing_ends_the_run_in_error(pod: Pod) -> None:
    ended = await pod.run("steps", command=Command(update={}))
    assert ended.run.error == {
        "error": "ValueError",
        "message": "command: must have at least one of update, resume and goto",
    }


async def _stepped(pod: Pod) -> Ended:
    return await pod.run("steps", input={"log": []})


async def test_a_checkpoint_that_the_thread_lacks_ends_the_run_in_error_and_keeps_the_state(pod: Pod) -> None:
    mine, other = await _stepped(pod), await _stepped(pod)
    assert other.thread.head is not None
    for checkpoint_id in (str(uuid.uuid4()), other.thread.head["checkpoint"]["checkpoint_id"]):
        thread_id = mine.run.thread_id
        ended = await pod.run("steps", thread_id=thread_id, input={}, checkpoint={"checkpoint_id": checkpoint_id})
        assert ended.run.error == {
            "error": "UnknownCheckpoint",
            "message": f"Checkpoint {checkpoint_id} of thread {thread_id} not found.",
        }
        assert ended.thread.values["log"] == ["a", "b", "c"]


async def test_an_update_at_a_checkpoint_that_the_thread_lacks_is_refused(pod: Pod) -> None:
    run = (await _stepped(pod)).run
    update = StateUpdate(graph_id="steps", values={"log": ["x"]}, checkpoint={"checkpoint_id": str(uuid.uuid4())})
    with pytest.raises(NotFound, match=r"^Checkpoint .* not found"):
        await pod.client.update(run.thread_id, update)
    assert (await pod.state(run))["values"]["log"] == ["a", "b", "c"]


async def test_a_history_filter_that_sqlite_cannot_look_for_is_refused(pod: Pod) -> None:
    run = (await _stepped(pod)).run
    query = HistoryQuery(graph_id="steps", limit=5, metadata={"it's": 1})
    if pod.db.kind == "postgresql":
        assert await pod.client.history(run.thread_id, query) == []
        return
    with pytest.raises(BadRequest, match=r"^metadata: Invalid filter key"):
        await pod.client.history(run.thread_id, query)
