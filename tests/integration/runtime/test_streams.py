"""What a run streams: modes, namespaces, first and last events, replay."""

import uuid
from pathlib import Path

import pytest
from tests.integration.runtime.harness import Pod, started_pod

from runyard_api.errors import NotFound
from runyard_api.events import EventId
from runyard_api.states import RunState, ThreadState

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


async def test_a_run_begins_with_metadata_and_ends_with_end(pod: Pod) -> None:
    ended = await pod.run("chat", input=HELLO)
    assert ended.modes == ["metadata", "values", "values", "end"]
    assert ended.data("metadata") == [{"run_id": ended.run.run_id, "attempt": 1}]
    assert ended.data("end") == [{"status": "success"}]
    assert ended.run.status is RunState.SUCCESS
    assert ended.thread.status is ThreadState.IDLE
    final = ended.data("values")[-1]
    assert final["messages"][-1]["content"] == " ".join(["tok"] * 10)
    assert ended.run.result == final
    assert ended.thread.values == final


async def test_messages_arrive_token_by_token(pod: Pod) -> None:
    ended = await pod.run("chat", input=HELLO, stream_mode=["messages-tuple", "updates"])
    tokens = ended.data("messages")
    assert "".join(chunk["content"] for chunk, _ in tokens) == " ".join(["tok"] * 10)
    assert len(tokens) >= 19
    chunk, metadata = tokens[0]
    assert chunk["type"] == "AIMessageChunk"
    identity = {k: metadata[k] for k in ("run_id", "thread_id", "graph_id", "assistant_id", "langgraph_node")}
    assert identity == {
        "run_id": ended.run.run_id,
        "thread_id": ended.run.thread_id,
        "graph_id": "chat",
        "assistant_id": "as1",
        "langgraph_node": "answer",
    }
    assert list(ended.data("updates")[0]) == ["answer"]
    assert "values" not in ended.modes
    assert ended.run.result["messages"][-1]["type"] == "ai"


async def test_what_a_node_writes_comes_as_custom(pod: Pod) -> None:
    ended = await pod.run("custom", input={"log": []}, stream_mode=["custom"])
    assert ended.data("custom") == [{"progress": 1}, {"progress": 2}]


async def test_debug_tasks_and_checkpoints_are_streamed(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []}, stream_mode=["debug", "tasks", "checkpoints"])
    assert {d["type"] for d in ended.data("debug")} == {"checkpoint", "task", "task_result"}
    assert [t["name"] for t in ended.data("tasks") if "input" in t] == ["a", "b", "c"]
    assert ended.data("checkpoints")[-1]["next"] == []


async def test_events_of_a_subgraph_carry_its_namespace(pod: Pod) -> None:
    ended = await pod.run("nested", input=HELLO, stream_mode=["updates", "messages-tuple"], stream_subgraphs=True)
    inner = [e.ns for e in ended.events if e.mode == "updates" and b'"inner"' in e.data]
    assert len(inner) == 1
    assert inner[0][0].startswith("sub:")
    assert [list(d) for d in ended.data("updates", ns=())] == [["sub"], ["z"]]
    assert all(e.ns and e.ns[0].startswith("sub:") for e in ended.events if e.mode == "messages")


async def test_subgraphs_stay_silent_unless_asked_for(pod: Pod) -> None:
    ended = await pod.run("nested", input=HELLO, stream_mode=["updates"])
    assert [list(d) for d in ended.data("updates")] == [["sub"], ["z"]]


async def test_ids_rise_and_a_reader_goes_on_after_the_one_it_names(pod: Pod) -> None:
    ended = await pod.run("chat", input=HELLO, stream_mode=["messages-tuple"])
    ids = [event.id for event in ended.events]
    assert ids == sorted(set(ids))
    assert all(event_id.base == ended.run.event_base and event_id.attempt == 1 for event_id in ids)
    rest = [event async for event in pod.client.events(ended.run.run_id, ids[4])]
    assert rest == ended.events[5:]


async def test_another_pod_replays_a_finished_run_from_the_log(pod: Pod, tmp_path: Path) -> None:
    ended = await pod.run("chat", input=HELLO, stream_mode=["messages-tuple"])
    async with started_pod(pod.settings.database_url, tmp_path) as other:
        assert [event async for event in other.client.events(ended.run.run_id, EventId(0, 0))] == ended.events
        assert [event async for event in other.client.events(ended.run.run_id, ended.events[3].id)] == ended.events[4:]
        assert [event async for event in other.client.events(ended.run.run_id, live=True)] == []


async def test_an_unknown_run_has_no_events(pod: Pod) -> None:
    with pytest.raises(NotFound):
        await anext(pod.client.events(str(uuid.uuid4())))


async def test_a_reader_slower_than_the_ring_goes_on_from_the_log(pod: Pod) -> None:
    run = await pod.create("flood", input={"log": []}, stream_mode=["custom"])
    await pod.start(run)
    numbers, first = [], True
    async for event in pod.client.events(run.run_id):
        if event.mode == "custom":
            numbers.append(event.data)
        if first:
            await pod.over(run)
            first = False
    assert len(numbers) == 3000
    assert numbers == sorted(numbers, key=lambda d: int(d.split(b":")[1].split(b",")[0]))


async def test_two_runs_of_a_thread_share_its_state_and_their_ids_rise(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": ["1"]})
    second = await pod.run("steps", thread_id=first.run.thread_id, input={"log": ["2"]})
    assert second.thread.values["log"] == ["1", "a", "b", "c", "2", "a", "b", "c"]
    assert second.events[0].id > first.events[-1].id
