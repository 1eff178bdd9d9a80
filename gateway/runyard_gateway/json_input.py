"""Reading JSON strictly: what can't be stored, or not sent again as it came, is refused at the door. Pure.

Called by body.py. orjson decides what JSON is; what it lets through and we don't is looked for with scans of the raw
bytes that cost nothing noticeable, and proven with a slower one only where they find something.
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any

import orjson
from fastapi import HTTPException

MAX_DEPTH = 128
"""Levels of lists and objects in a body. Below the limits of every writer of JSON on the way to the graph."""

MAX_VALUES = 1_000_000
"""Values in a body. Each is an object of Python's: 64 MiB of `[],[],…` would become gigabytes."""

BAD_JSON = "Invalid JSON in request body"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_LONG_DIGITS = re.compile(rb"[0-9]{19}")
_LONG_INTEGERS = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}(?![0-9.eE])")


def parse_json(raw: bytes) -> Any:
    """The document. Raises HTTPException 422 for what is no JSON (NaN, infinity, lone surrogates), is deeper than
    MAX_DEPTH, has more than MAX_VALUES values, a key twice in one object, an integer beyond 64 bits, or a NUL, which
    Postgres can't store."""
    brackets = raw.count(b"[") + raw.count(b"{")
    bare: bytes | None = None
    if brackets + raw.count(b",") > MAX_VALUES:
        bare = _STRINGS.sub(b"", raw)
        brackets = bare.count(b"[") + bare.count(b"{")
        if brackets + bare.count(b",") > MAX_VALUES:
            raise HTTPException(422, f"{BAD_JSON}: more than {MAX_VALUES} values")
    try:
        document = orjson.loads(raw)
    except JSONDecodeError as error:
        raise HTTPException(422, BAD_JSON) from error
    if brackets > MAX_DEPTH and _depth(document) > MAX_DEPTH:
        raise HTTPException(422, f"{BAD_JSON}: more than {MAX_DEPTH} levels deep")
    if b"\\u0000" in raw and any("\x00" in text for text in _texts(document)):
        raise HTTPException(422, "Request body: text must not contain NUL characters (\\u0000)")
    colons = raw.count(b":")
    if colons and colons != (keys := _keys(document)) and (bare or _STRINGS.sub(b"", raw)).count(b":") != keys:
        raise HTTPException(422, f"{BAD_JSON}: a key occurs twice in one object")
    if _LONG_DIGITS.search(raw) and any(map(_too_long, _LONG_INTEGERS.findall(bare or _STRINGS.sub(b"", raw)))):
        raise HTTPException(422, f"{BAD_JSON}: integers must fit in 64 bits")
    return document


def _too_long(digits: bytes) -> bool:
    return len(digits) > 20 or not -(2**63) <= int(digits) < 2**64


def _depth(document: Any) -> int:
    level, depth = [document], 0
    while level := [child for node in level for child in _children(node)]:
        depth += 1
        if depth > MAX_DEPTH:
            break
    return depth + 1


def _keys(document: Any) -> int:
    """The keys of all objects."""
    pending, found = [document], 0
    while pending:
        node = pending.pop()
        if type(node) is dict:
            found += len(node)
            pending.extend(node.values())
        elif type(node) is list:
            pending.extend(node)
    return found


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _texts(document: Any) -> Iterator[str]:
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            yield from node
        pending.extend(_children(node))
