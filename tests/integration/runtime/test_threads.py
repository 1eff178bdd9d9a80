"""State, history, update and schemas, and how factories and contexts reach a graph."""

import uuid

import pytest
from tests.integration.runtime.harness import Pod

from runyard_api.errors import BadRequest, NotFound
from runyard_api.internal import HistoryQuery, StateQuery, StateUpdate
from runyard_api.states import ThreadState
from runyard_store.threads import get_thread


async def test_the_state_of_a_thread_without_checkpoints(pod: Pod) -> None:
    state = await pod.client.state(str(uuid.uuid4()), StateQuery(graph_id="steps"))
    assert state == {
        "values": {},
        "next": [],
        "tasks": [],
        "metadata": {},
        "created_at": None,
        "checkpoint": None,
        "parent_checkpoint": None,
        "interrupts": [],
        "checkpoint_id": None,
        "parent_checkpoint_id": None,
    }


async def test_state_and_history_have_the_shape_of_the_api(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []})
    thread_id = ended.run.thread_id
    state = await pod.state(ended.run)
    assert state == ended.thread.head
    assert state["checkpoint"] == {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": state["checkpoint_id"]}
    assert state["metadata"]["run_id"] == ended.run.run_id
    history = await pod.client.history(thread_id, HistoryQuery(graph_id="steps"))
    assert [entry["next"] for entry in history] == [[], ["c"], ["b"], ["a"], ["__start__"]]
    assert history[0] == state
    assert history[0]["parent_checkpoint"] == history[1]["checkpoint"]
    second = {"checkpoint_id": history[1]["checkpoint_id"]}
    for before in (second, {"configurable": second}):
        earlier = HistoryQuery(graph_id="steps", limit=2, before=before)
        assert await pod.client.history(thread_id, earlier) == history[2:4]
    filtered = HistoryQuery(graph_id="steps", metadata={"step": 1})
    assert [entry["next"] for entry in await pod.client.history(thread_id, filtered)] == [["b"]]
    at = StateQuery(graph_id="steps", checkpoint={"checkpoint_id": history[2]["checkpoint_id"]})
    assert await pod.client.state(thread_id, at) == history[2]


async def test_a_checkpoint_that_does_not_exist(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []})
    missing = StateQuery(graph_id="steps", checkpoint={"checkpoint_id": "1f0a0000-0000-6000-8000-000000000000"})
    with pytest.raises(NotFound):
        await pod.client.state(ended.run.thread_id, missing)


async def test_the_state_of_a_waiting_subgraph_is_nested_when_asked_for(pod: Pod) -> None:
    ended = await pod.run("nested", input={"messages": []}, interrupt_before=["z"])
    plain = await pod.state(ended.run)
    assert plain["next"] == ["z"]
    deep = await pod.client.state(ended.run.thread_id, StateQuery(graph_id="nested", subgraphs=True))
    assert deep["values"] == plain["values"]


async def test_an_update_writes_a_checkpoint_and_the_thread_row(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": []}, interrupt_before=["b"])
    thread_id = first.run.thread_id
    answer = await pod.client.update(thread_id, StateUpdate(graph_id="steps", values={"log": ["u"]}, as_node="b"))
    assert answer["checkpoint"] == answer["configurable"]
    assert answer["checkpoint"]["thread_id"] == thread_id
    state = await pod.state(first.run)
    assert (state["values"]["log"], state["next"]) == (["a", "u"], ["c"])
    assert state["checkpoint_id"] == answer["checkpoint_id"]
    thread = await get_thread(pod.db, thread_id)
    assert (thread.values["log"], thread.status, thread.head) == (["a", "u"], ThreadState.INTERRUPTED, state)
    done = await pod.run("steps", thread_id=thread_id, input=None)
    assert done.thread.values["log"] == ["a", "u", "c"]


async def test_an_update_that_the_graph_refuses(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": []})
    for change in (
        StateUpdate(graph_id="steps", values={"log": ["u"]}, as_node="nobody"),
        StateUpdate(graph_id="steps", values=[{"log": ["u"]}]),
    ):
        with pytest.raises(BadRequest):
            await pod.client.update(first.run.thread_id, change)
    again = await pod.run("steps", thread_id=first.run.thread_id, input={"log": []})
    assert again.thread.values["log"] == ["a", "b", "c"] * 2


async def test_an_update_of_an_unknown_thread_or_graph(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": []})
    with pytest.raises(NotFound):
        await pod.client.update(str(uuid.uuid4()), StateUpdate(graph_id="steps", values={}))
    with pytest.raises(NotFound):
        await pod.client.update(first.run.thread_id, StateUpdate(graph_id="nothing", values={}))


async def test_context_reaches_nodes_and_our_ids_win_over_the_users(pod: Pod) -> None:
    sent = {"model": "big", "thread_id": "forged", "unknown": 1}
    ended = await pod.run("context", input={"log": []}, context=sent)
    assert ended.run.result["log"] == ["big", ended.run.thread_id, "u1", "None"]
    old = {"configurable": {"model": "small", "user_id": "forged", "__secret": "x"}}
    ended = await pod.run("context", input={"log": []}, config=old)
    assert ended.run.result["log"] == ["small", ended.run.thread_id, "u1", "None"]
    ended = await pod.run("context", input={"log": []})
    assert ended.run.result["log"][0] == "default"


async def test_a_users_run_id_in_metadata_does_not_make_langgraph_ignore_the_input(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": ["1"]}, metadata={"run_id": "mine", "colour": "red"})
    second = await pod.run("steps", thread_id=first.run.thread_id, input={"log": ["2"]}, metadata={"run_id": "mine"})
    assert second.thread.values["log"] == ["1", "a", "b", "c", "2", "a", "b", "c"]
    head = first.thread.head or {}
    assert (head["metadata"]["run_id"], head["metadata"]["colour"]) == (first.run.run_id, "red")


async def test_factories_see_config_or_runtime(pod: Pod) -> None:
    ended = await pod.run("by_config", input={"log": []}, config={"configurable": {"word": "w1"}})
    assert ended.run.result["log"] == ["w1"]
    ended = await pod.run("by_config", input={"log": []}, context={"word": "w2"})
    assert ended.run.result["log"] == ["w2"]
    ended = await pod.run("by_runtime", input={"log": []}, context={"model": "big"})
    assert ended.run.result["log"] == ["threads.create_run:big"]
    assert (await pod.state(ended.run))["values"]["log"] == ["threads.create_run:big"]


async def test_schemas_and_info(pod: Pod) -> None:
    schemas = await pod.client.schemas("context")
    assert schemas.context_schema is not None
    assert list(schemas.context_schema["properties"]) == ["model"]
    assert schemas.input_schema is not None
    assert {"messages", "log"} <= set(schemas.state_schema["properties"])  # type: ignore[index]
    assert (await pod.client.schemas("by_runtime")).output_schema is not None
    with pytest.raises(NotFound):
        await pod.client.schemas("nothing")
    info = await pod.client.info()
    assert "chat" in info.graphs
    assert info.versions["langgraph"].startswith("1.2")
