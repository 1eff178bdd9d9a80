"""JSON of what graphs emit: every case has one, and it is the one clients expect."""

import dataclasses
import datetime
import decimal
import enum
import uuid
from collections import deque
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import orjson
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, model_serializer

from runyard_runtime.serialize import dumps, error_json


class Colour(enum.Enum):
    RED = "red"
    ODD = object()


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Plan:
    title: str
    due: datetime.date


class Model(BaseModel):
    plan: Any


class Broken(BaseModel):
    a: int = 1

    @model_serializer
    def _fails(self) -> Any:
        raise RuntimeError("no")


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no")


PLAN = Plan("p", datetime.date(2026, 1, 2))
CASES = [
    ("none", None, None),
    ("not a number", [float("nan"), float("inf")], [None, None]),
    ("a set", {"s": {1}}, {"s": [1]}),
    ("bytes become base64", b"\x00\xff", "AP8="),
    ("an enum is its value", Colour.RED, "red"),
    ("a dataclass in a model in a list", [Model(plan=PLAN)], [{"plan": {"title": "p", "due": "2026-01-02"}}]),
    ("a model whose serializer raises", Broken(), {"a": 1}),
    ("a named tuple", Point(1, 2), {"x": 1, "y": 2}),
    ("a deque", deque([1, 2]), [1, 2]),
    ("a path", PurePosixPath("/a"), "/a"),
    ("a uuid", uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ("a decimal", decimal.Decimal("1.5"), "Decimal('1.5')"),
    ("an exception", ValueError("x"), "ValueError('x')"),
    ("an interrupt", Interrupt(value="q", id="i"), {"value": "q", "id": "i"}),
    ("an interrupt's schema", Interrupt("q", "i", response_schema={}), {"value": "q", "id": "i"}),
    ("a send", Send("n", {"a": 1}), {"node": "n", "input": {"a": 1}}),
    ("a command", Command(resume=1, goto="n"), {"resume": 1, "goto": "n"}),
    ("keys that are no text", {1: "a", Colour.RED: "b"}, {"1": "a", "red": "b"}),
    ("keys that are tuples", {("a", 1): 2}, {"('a', 1)": 2}),
    ("an integer beyond 64 bits", {"n": 2**70}, {"n": str(2**70)}),
    ("half a surrogate pair", {"t": "a\ud800"}, {"t": "a?"}),
    ("an object that can't even be shown", Silent(), "<Silent>"),
]


@pytest.mark.parametrize(("value", "want"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_everything_has_a_json_form(value: Any, want: Any) -> None:
    assert orjson.loads(dumps(value)) == want


def test_messages_keep_all_their_fields() -> None:
    chunk = orjson.loads(dumps(AIMessageChunk(content="tok", id="lc_run--1")))
    assert (chunk["type"], chunk["content"], chunk["id"]) == ("AIMessageChunk", "tok", "lc_run--1")
    assert "tool_call_chunks" in chunk
    odd = HumanMessage("hi", additional_kwargs={"object": Silent()})
    assert orjson.loads(dumps([odd]))[0]["additional_kwargs"] == {"object": "<Silent>"}


def test_an_enum_with_an_odd_value_and_a_generator() -> None:
    assert orjson.loads(dumps(Colour.ODD)).startswith("<object object")
    assert orjson.loads(dumps(iter_ for iter_ in range(0))).startswith("<generator")


def test_a_structure_that_contains_itself_or_is_very_deep_still_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert dumps(loop)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert dumps(deep)


def test_no_document_holds_a_newline() -> None:
    assert b"\n" not in dumps({"a": "x\ny", "b": [HumanMessage("p\nq")]})


def test_an_error_without_a_text_is_named_by_its_class() -> None:
    assert error_json(KeyError()) == {"error": "KeyError", "message": "KeyError"}
    assert error_json(ValueError("bad")) == {"error": "ValueError", "message": "bad"}
