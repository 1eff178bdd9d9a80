"""JSON of whatever a graph emits: messages, models, dataclasses, interrupts, sets, bytes, exceptions and the rest.

Called on the graph thread for every event, and for values, states and results. Never fails: what has no JSON form
becomes its `repr`. NaN and infinities become null, as orjson does.
"""

import base64
import dataclasses
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any

import orjson
from langchain_core.messages import BaseMessage
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
_LONGEST_REPR = 10_000


def dumps(value: object) -> bytes:
    """One JSON document, without a newline in it."""
    try:
        return orjson.dumps(value, default=_plain, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        # Lone surrogates, integers beyond 64 bits, odd keys, very deep nesting: rebuilt piece by piece.
        return orjson.dumps(_rebuilt(value, 0))


def interrupt_json(interrupt: Interrupt) -> dict[str, Any]:
    """`{value, id}`, plus `response_schema` where the graph gave one: the form of the public API."""
    shown = {"value": interrupt.value, "id": interrupt.id}
    return {**shown, "response_schema": interrupt.response_schema} if interrupt.response_schema else shown


def error_json(error: BaseException) -> dict[str, str]:
    """`{error: class name, message}`."""
    name = type(error).__name__
    try:
        text = str(error) or name
    except Exception:  # a user's own __str__ may raise anything
        text = name
    return {"error": name, "message": storable(text)}


def storable(text: str) -> str:
    """The text without what JSON or Postgres can't hold: lone surrogates and NUL characters become "?"."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")


def _plain(value: Any) -> Any:
    """The next simpler form of a value orjson doesn't know; orjson calls again for what is inside."""
    if isinstance(value, BaseMessage):
        return _message(value)
    if isinstance(value, BaseModel):
        return _model(value)
    if isinstance(value, Interrupt):
        return interrupt_json(value)
    if isinstance(value, Send):
        return {"node": value.node, "input": value.arg}
    if isinstance(value, Command):
        return {k: v for k in ("update", "resume", "goto", "graph") if (v := getattr(value, k)) not in (None, ())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    return _builtin(value)


def _message(message: BaseMessage) -> dict[str, Any]:
    # Python-mode dump: orjson goes on from here, so one odd object in additional_kwargs can't fail the message.
    return message.model_dump()


def _model(model: BaseModel) -> Any:
    try:
        return model.model_dump()
    except Exception:  # a user's own serializer may raise anything
        return {name: getattr(model, name, None) for name in type(model).model_fields}


def _builtin(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=False))
    if isinstance(value, list | tuple | deque):
        return list(value)
    if isinstance(value, AbstractSet):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, BaseException):
        return repr(value)
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, complex):
        return str(value)
    return _described(value)


def _described(value: Any) -> str:
    try:
        return repr(value)[:_LONGEST_REPR]
    except Exception:  # a user's own __repr__ may raise anything
        return f"<{type(value).__name__}>"


def _rebuilt(value: Any, depth: int) -> Any:
    """A copy made of orjson's plain types only, whatever `value` is; deeper than 200 levels becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return value.encode("utf-8", "replace").decode()
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else str(value)
    if type(value) is float:
        return value
    if depth > 200:
        return f"<{type(value).__name__}>"
    if type(value) is dict:
        return {_key(k): _rebuilt(v, depth + 1) for k, v in value.items()}
    if type(value) in (list, tuple):
        return [_rebuilt(v, depth + 1) for v in value]
    try:
        return orjson.loads(orjson.dumps(value, default=_plain, option=_OPTIONS))
    except (TypeError, ValueError, RecursionError):
        simpler = _plain(value)
        return _rebuilt(simpler, depth + 1) if simpler is not value else _described(value)


def _key(key: Any) -> str:
    text = key if isinstance(key, str) else str(key)
    return text.encode("utf-8", "replace").decode()
