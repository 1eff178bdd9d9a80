"""From a run request to the run that is stored: defaults, and every refusal with its status and words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runyard_api.errors import RunyardError
from runyard_api.wire import RunCreate
from runyard_gateway.assistants import Assistant
from runyard_gateway.intake import Place, new_run
from runyard_store.runs import NewRun

ASSISTANT = Assistant("hello", "hello", "greeter", datetime(2026, 1, 1, tzinfo=UTC))
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
THREAD = Place("r", "t", "user")
STATELESS = Place("r", "t", "user", stateless=True)


def made(place: Place = THREAD, **fields: Any) -> NewRun:
    return new_run(RunCreate.model_validate({"assistant_id": "hello", **fields}), ASSISTANT, place, NOW)


def test_defaults() -> None:
    run = made()
    assert (run.multitask_strategy, run.on_disconnect, run.if_not_exists, run.temporary) == (
        "enqueue",
        "continue",
        "reject",
        False,
    )
    assert run.payload.model_dump(exclude_defaults=True) == {}
    assert (run.payload.stream_mode, run.payload.durability) == (["values"], "async")
    assert (run.agent_name, run.graph_id, run.assistant_id) == ("greeter", "hello", ASSISTANT.assistant_id)


REFUSALS: dict[str, tuple[Place, dict[str, Any], int, str]] = {
    "input beside command": (THREAD, {"input": {}, "command": {"resume": 1}}, 400, "input and command"),
    "configurable beside context": (
        THREAD,
        {"config": {"configurable": {"a": 1}}, "context": {"b": 1}},
        400,
        "Cannot specify both configurable and context",
    ),
    "a stateless resume": (STATELESS, {"command": {"resume": 1}}, 400, "You must provide a thread_id when resuming."),
    "a stateless fork": (STATELESS, {"checkpoint_id": "c"}, 400, "thread_id"),
    "deleting a named thread": (THREAD, {"on_completion": "delete"}, 422, "on_completion"),
    "two checkpoints": (THREAD, {"checkpoint": {"checkpoint_id": "a"}, "checkpoint_id": "b"}, 400, "checkpoint_id"),
    "another thread's checkpoint": (THREAD, {"checkpoint": {"thread_id": "x", "checkpoint_id": "a"}}, 400, "thread_id"),
    "durability against checkpoint_during": (
        THREAD,
        {"durability": "exit", "checkpoint_during": True},
        400,
        "checkpoint_during",
    ),
    "a command that says nothing": (THREAD, {"command": {}}, 422, "command: must have at least one of update, resume"),
    "a command that says it with empty values": (THREAD, {"command": {"update": {}, "goto": []}}, 422, "command: must"),
    "a webhook": (THREAD, {"webhook": "https://x"}, 422, "webhook: not supported by this server"),
    "feedback keys": (THREAD, {"feedback_keys": ["k"]}, 422, "feedback_keys: not supported by this server"),
}


@pytest.mark.parametrize(("place", "fields", "status", "words"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals(place: Place, fields: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(RunyardError) as refused:
        made(place, **fields)
    assert (refused.value.status, words in refused.value.detail) == (status, True), refused.value.detail


TOLERATED: dict[str, dict[str, Any]] = {
    "empty feedback keys": {"feedback_keys": []},
    "no delay": {"after_seconds": 0},
    "hints of newer SDKs": {"strict_resume": True, "reason": "retry", "langsmith_tracer": {"project_name": "p"}},
    "an empty configurable beside a context": {"config": {"configurable": {}}, "context": {"a": 1}},
    "the server's own keys beside a context": {"config": {"configurable": {"thread_id": "t"}}, "context": {"a": 1}},
    "durability that checkpoint_during doesn't contradict": {"durability": "sync", "checkpoint_during": True},
    "keeping a named thread": {"on_completion": "keep"},
    "a null input beside a command": {"input": None, "command": {"resume": 1}},
    "tools among the modes": {"stream_mode": ["values", "tools"]},
}


@pytest.mark.parametrize("fields", TOLERATED.values(), ids=TOLERATED.keys())
def test_tolerated(fields: dict[str, Any]) -> None:
    made(**fields)


MODES: dict[str, tuple[Any, list[str]]] = {
    "none": (None, ["values"]),
    "one as a string": ("updates", ["updates"]),
    "several": (["messages-tuple", "custom"], ["messages-tuple", "custom"]),
    "one twice": (["values", "values"], ["values"]),
    "an empty list": ([], ["values"]),
    "tools alone": (["tools"], ["values"]),
    "tools among others": (["updates", "tools"], ["updates"]),
}


@pytest.mark.parametrize(("given", "want"), MODES.values(), ids=MODES.keys())
def test_stored_modes(given: Any, want: list[str]) -> None:
    assert made(stream_mode=given).payload.stream_mode == want


CHECKPOINTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "none": ({}, None),
    "by id": ({"checkpoint_id": "c"}, {"checkpoint_id": "c"}),
    "as an object": (
        {"checkpoint": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c", "checkpoint_map": None}},
        {"checkpoint_ns": "", "checkpoint_id": "c"},
    ),
    "in both ways": ({"checkpoint": {"checkpoint_id": "c"}, "checkpoint_id": "c"}, {"checkpoint_id": "c"}),
    "in a config of its own": ({"checkpoint": {"configurable": {"checkpoint_id": "c"}}}, {"checkpoint_id": "c"}),
    "in the config": ({"config": {"configurable": {"checkpoint_id": "c"}}}, {"checkpoint_id": "c"}),
}


@pytest.mark.parametrize(("fields", "want"), CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
def test_the_checkpoint_to_fork_from(fields: dict[str, Any], want: dict[str, Any] | None) -> None:
    assert made(**fields).payload.checkpoint == want


def test_the_servers_keys_are_taken_out_of_configurable() -> None:
    given = {"user": "u", "thread_id": "x", "run_id": "y", "checkpoint_ns": "n", "__pregel_resuming": True}
    run = made(config={"tags": ["a"], "recursion_limit": 7, "configurable": given, "run_name": "mine"})
    assert run.payload.config == {
        "tags": ["a"],
        "recursion_limit": 7,
        "run_name": "mine",
        "configurable": {"user": "u"},
    }


@pytest.mark.parametrize(("during", "want"), [(True, "async"), (False, "exit"), (None, "async")])
def test_checkpoint_during_is_a_durability(during: bool | None, want: str) -> None:
    assert made(checkpoint_during=during).payload.durability == want


def test_a_stateless_run_makes_a_thread_that_goes_with_it_unless_kept() -> None:
    assert (made(STATELESS).temporary, made(STATELESS).if_not_exists) == (True, "create")
    assert made(STATELESS, on_completion="keep").temporary is False


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), (0, None), (1.5, NOW + timedelta(seconds=1.5)), (60, NOW + timedelta(minutes=1))],
)
def test_a_delay_is_a_time_before_which_the_run_doesnt_start(given: float | None, expected: datetime | None) -> None:
    assert made(after_seconds=given).not_before == expected
