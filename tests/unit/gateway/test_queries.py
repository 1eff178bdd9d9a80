"""Small readers of what clients send: modes of a query, checkpoints, pages, ids, validation sentences, settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from runyard_api.errors import BadRequest, Invalid
from runyard_api.wire import CheckpointRef, RunCreate
from runyard_gateway.failures import sentence
from runyard_gateway.ids import uuid7
from runyard_gateway.paging import page
from runyard_gateway.routes.runs import modes_of
from runyard_gateway.state import before_of, checkpoint_of

MODES: dict[str, tuple[list[str], list[str]]] = {
    "none": ([], []),
    "one": (["values"], ["values"]),
    "repeated": (["values", "messages-tuple"], ["values", "messages-tuple"]),
    "a JSON array": (['["values","custom"]'], ["values", "custom"]),
    "comma-separated": (["values,custom"], ["values", "custom"]),
    "an empty text": ([""], []),
    "tools": (["tools"], ["tools"]),
}


@pytest.mark.parametrize(("given", "want"), MODES.values(), ids=MODES.keys())
def test_modes_of_a_query(given: list[str], want: list[str]) -> None:
    assert modes_of(given) == want


@pytest.mark.parametrize("given", ["nope", "[", '["nope"]', "[1]", "[" * 1000 + "]" * 1000])
def test_modes_that_dont_exist_are_refused(given: str) -> None:
    with pytest.raises(Invalid, match="stream_mode"):
        modes_of([given])


BEFORE: dict[str, tuple[Any, Any]] = {
    "nothing": (None, None),
    "an id": ("c", {"configurable": {"checkpoint_id": "c"}}),
    "a checkpoint": ({"thread_id": "t", "checkpoint_id": "c"}, {"configurable": {"checkpoint_id": "c"}}),
    "a config": ({"configurable": {"checkpoint_id": "c"}}, {"configurable": {"checkpoint_id": "c"}}),
}


@pytest.mark.parametrize(("given", "want"), BEFORE.values(), ids=BEFORE.keys())
def test_before(given: Any, want: Any) -> None:
    assert before_of(given) == want


@pytest.mark.parametrize("given", [{"a": 1}, {"configurable": 5}, {"checkpoint_id": 5}])
def test_before_without_a_checkpoint_is_refused(given: Any) -> None:
    with pytest.raises(Invalid, match="before"):
        before_of(given)


def test_checkpoint_of() -> None:
    assert checkpoint_of(None, None) is None
    assert checkpoint_of(CheckpointRef(thread_id="t", checkpoint_ns=""), None) is None
    assert checkpoint_of(CheckpointRef(checkpoint_ns="a:1"), None) == {"checkpoint_ns": "a:1"}
    assert checkpoint_of(CheckpointRef(checkpoint_ns=""), "c") == {"checkpoint_ns": "", "checkpoint_id": "c"}
    with pytest.raises(BadRequest):
        checkpoint_of(CheckpointRef(checkpoint_id="a"), "b")


@pytest.mark.parametrize(
    ("count", "total", "offset", "following"),
    [(10, 25, 0, "10"), (10, 25, 10, "20"), (5, 25, 20, None), (0, 25, 30, None), (0, 0, 0, None)],
)
def test_pages(count: int, total: int, offset: int, following: str | None) -> None:
    answer = page([1] * count, total=total, offset=offset)
    assert answer.headers["x-pagination-total"] == str(total)
    assert answer.headers.get("x-pagination-next") == following


def test_uuid7() -> None:
    early, late = uuid7(1_700_000_000_000, b"\xff" * 10), uuid7(1_700_000_000_001, b"\x00" * 10)
    assert (early.version, early.variant) == (7, "specified in RFC 4122")
    assert early.bytes[:6] == (1_700_000_000_000).to_bytes(6)
    assert str(early) < str(late)


SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "no assistant": ({}, "assistant_id: this field is required"),
    "an unknown field": ({"assistant_id": "a", "colour": 1}, "colour: this field is not known to the server"),
    "an unknown mode": (
        {"assistant_id": "a", "stream_mode": ["values", "x"]},
        "stream_mode[1]: input should be 'values', 'updates', 'messages', 'messages-tuple', 'custom', 'debug', "
        "'tasks', 'checkpoints' or 'tools'",
    ),
    "lifecycle": ({"assistant_id": "a", "stream_mode": "lifecycle"}, "stream_mode[0]: input should be"),
    "events": (
        {"assistant_id": "a", "stream_mode": "events"},
        "stream_mode: mode 'events' is not supported by this server",
    ),
    "a config that is no object": ({"assistant_id": "a", "config": 5}, "config: input should be an object"),
    "a recursion limit of zero": (
        {"assistant_id": "a", "config": {"recursion_limit": 0}},
        "config.recursion_limit: input should be greater than or equal to 1",
    ),
    "breakpoints of a wrong type": ({"assistant_id": "a", "interrupt_before": 5}, "interrupt_before: input should be"),
    "a goto of a wrong type": ({"assistant_id": "a", "command": {"goto": 5}}, "command.goto: input should be"),
    "a list with a breakpoint of a wrong type": (
        {"assistant_id": "a", "interrupt_before": [1]},
        "interrupt_before[0]: input should be a valid string",
    ),
    "a goto without a node": ({"assistant_id": "a", "command": {"goto": {}}}, "command.goto.node: this field is req"),
    "a concurrency of a wrong type": (
        {"assistant_id": "a", "config": {"max_concurrency": "x"}},
        "config.max_concurrency: input should be a valid integer",
    ),
    "a checkpoint id of a wrong type": (
        {"assistant_id": "a", "checkpoint": {"checkpoint_id": 5}},
        "checkpoint.checkpoint_id: input should be a valid string",
    ),
    "a checkpoint map of a wrong type": (
        {"assistant_id": "a", "checkpoint": {"checkpoint_map": 5}},
        "checkpoint.checkpoint_map: input should be an object",
    ),
    "a strategy": (
        {"assistant_id": "a", "multitask_strategy": "x"},
        "multitask_strategy: input should be 'enqueue', 'reject', 'interrupt' or 'rollback'",
    ),
}


@pytest.mark.parametrize(("body", "words"), SENTENCES.values(), ids=SENTENCES.keys())
def test_validation_errors_become_one_sentence(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RunCreate.model_validate(body)
    errors = [{**e, "loc": ("body", *e["loc"])} for e in refused.value.errors()]
    assert sentence(errors).startswith(words), sentence(errors)
