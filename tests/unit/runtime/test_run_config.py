"""The config, input and modes a run's graph is called with."""

import uuid
from typing import Any

import pytest
from langgraph.types import Command, Send

from runyard_api.payload import RunPayload
from runyard_runtime.run_config import (
    RunIdentity,
    checkpoint_keys,
    emitted_modes,
    graph_input,
    run_config,
    stream_modes,
    thread_config,
    user_context,
)

RUN = str(uuid.UUID(int=7))
IDENTITY = RunIdentity(RUN, "t1", "g1", "a1", "u1", attempt=2)
IDS = {"run_id": RUN, "thread_id": "t1", "graph_id": "g1", "assistant_id": "a1", "user_id": "u1"}


def _config(**payload: Any) -> dict[str, Any]:
    return dict(run_config(IDENTITY, RunPayload(**payload), recursion_limit=25))


def test_the_least_config() -> None:
    assert _config() == {
        "tags": [],
        "recursion_limit": 25,
        "configurable": IDS,
        "metadata": {"run_id": RUN, "thread_id": "t1", "graph_id": "g1", "assistant_id": "a1", "attempt": 2},
        "run_id": uuid.UUID(RUN),
    }


def test_ours_win_and_reserved_keys_go() -> None:
    forged = {"thread_id": "x", "user_id": "y", "__pregel_x": 1, "langgraph_auth_user": {}, "mine": 3}
    config = _config(
        config={"configurable": forged, "tags": ["a"], "recursion_limit": 9, "callbacks": [1], "run_name": "n"},
        metadata={"run_id": "x", "colour": "red"},
    )
    assert config["configurable"] == {**IDS, "mine": 3}
    assert (config["tags"], config["recursion_limit"], config["run_name"]) == (["a"], 9, "n")
    assert (config["metadata"]["run_id"], config["metadata"]["colour"]) == (RUN, "red")
    assert "callbacks" not in config


def test_context_is_seen_in_configurable_too() -> None:
    assert _config(context={"model": "m", "thread_id": "x"})["configurable"] == {**IDS, "model": "m"}


@pytest.mark.parametrize(
    "payload",
    [
        {"checkpoint": {"thread_id": "x", "checkpoint_id": "c", "checkpoint_ns": ""}},
        {"config": {"configurable": {"checkpoint_id": "c"}}},
    ],
)
def test_a_checkpoint_to_fork_from(payload: dict[str, Any]) -> None:
    assert _config(**payload)["configurable"] == {**IDS, "checkpoint_id": "c"}


def test_checkpoint_references_in_every_form() -> None:
    assert checkpoint_keys({"configurable": {"checkpoint_id": "c", "x": 1}}) == {"checkpoint_id": "c"}
    assert checkpoint_keys({"checkpoint_id": "c", "checkpoint_ns": "a:b"}) == {
        "checkpoint_id": "c",
        "checkpoint_ns": "a:b",
    }
    assert checkpoint_keys(None) == {}
    at = thread_config("t", {"checkpoint_id": "c", "thread_id": "x"})
    assert at == {"configurable": {"checkpoint_ns": "", "checkpoint_id": "c", "thread_id": "t"}}


def test_input_or_command() -> None:
    assert graph_input(RunPayload(input={"a": 1})) == {"a": 1}
    assert graph_input(RunPayload()) is None
    sent = {"resume": 0, "update": {"a": 1}, "goto": ["n", {"node": "m", "input": 2}]}
    command = graph_input(RunPayload(command=sent))
    assert command == Command(resume=0, update={"a": 1}, goto=["n", Send("m", 2)])


def test_context_comes_from_context_or_from_configurable_for_a_schema() -> None:
    old = RunPayload(config={"configurable": {"model": "m"}})
    assert user_context(old, has_schema=True) == {"model": "m"}
    assert user_context(old, has_schema=False) is None
    assert user_context(RunPayload(context={"model": "c"}), has_schema=False) == {"model": "c"}


def test_modes_are_langgraphs_and_values_is_always_run() -> None:
    assert stream_modes(["messages-tuple", "messages", "custom"]) == ["messages", "custom", "values"]
    assert stream_modes([]) == ["values"]
    assert emitted_modes(["messages-tuple", "custom"]) == {"messages", "custom"}
