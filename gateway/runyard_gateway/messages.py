"""The legacy `messages` mode: `messages/metadata`, then `messages/partial` with the message accumulated so far, or
`messages/complete` for a message that came whole. Pure; the only place that parses the data of events.
"""

from collections.abc import Iterator
from typing import Any

import orjson

Message = dict[str, Any]


class LegacyMessages:
    """Accumulates the chunks of one stream by message id."""

    def __init__(self) -> None:
        self._seen: dict[str, Message] = {}

    def add(self, data: bytes) -> list[tuple[str, bytes]]:
        """The (event, data) pairs that `[chunk, metadata]` leads to: none when it isn't of that form."""
        pair = orjson.loads(data)
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict)):
            return []
        message, metadata = pair
        return [(name, orjson.dumps(body)) for name, body in self._parts(message, metadata)]

    def _parts(self, message: Message, metadata: Any) -> Iterator[tuple[str, Any]]:
        key = str(message.get("id"))
        if key not in self._seen:
            yield "messages/metadata", {key: {"metadata": metadata}}
        if not str(message.get("type")).endswith("Chunk"):
            self._seen[key] = message
            yield "messages/complete", [message]
            return
        self._seen[key] = merge_chunks(self._seen[key], message) if key in self._seen else message
        yield "messages/partial", [whole_message(self._seen[key])]


def merge_chunks(left: Message, right: Message) -> Message:
    """Two chunks of one message as one: text is joined, indexed parts are merged by index, the rest is taken."""
    merged = {**left, **{key: value for key, value in right.items() if value is not None}}
    merged["content"] = _merge_content(left.get("content"), right.get("content"))
    merged["tool_call_chunks"] = _merge_indexed(left.get("tool_call_chunks") or [], right.get("tool_call_chunks") or [])
    for field in ("additional_kwargs", "response_metadata"):
        merged[field] = _merge_value(left.get(field) or {}, right.get(field) or {})
    merged["usage_metadata"] = _add_usage(left.get("usage_metadata"), right.get("usage_metadata"))
    return merged


def whole_message(chunk: Message) -> Message:
    """The chunk as the message it stands for: type `ai` and the like, tool calls read from what has come of them."""
    message = {key: value for key, value in chunk.items() if key not in ("tool_call_chunks", "chunk_position")}
    kind = str(chunk.get("type", "")).removesuffix("MessageChunk").lower()
    message["type"] = kind or "ai"
    if kind == "ai" and chunk.get("tool_call_chunks"):
        message["tool_calls"], message["invalid_tool_calls"] = _tool_calls(chunk["tool_call_chunks"])
    return message


def _merge_content(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if not left or not right:
        return left or right or ""
    return _merge_indexed(_blocks(left), _blocks(right))


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _merge_indexed(left: list[Any], right: list[Any]) -> list[Any]:
    """Parts with an equal `index` are one part in pieces; a part without one stands for itself."""
    merged = list(left)
    for part in right:
        index = part.get("index") if isinstance(part, dict) else None
        at = next((i for i, p in enumerate(merged) if index is not None and _index(p) == index), None)
        if at is None:
            merged.append(part)
        else:
            merged[at] = _merge_value(merged[at], part)
    return merged


def _index(part: Any) -> Any:
    return part.get("index") if isinstance(part, dict) else None


_IDENTITY = frozenset({"type", "index", "id", "model_name", "model_provider", "finish_reason"})


def _merge_value(left: Any, right: Any) -> Any:
    if isinstance(left, dict) and isinstance(right, dict):
        fresh = {key: value for key, value in right.items() if key not in left or left[key] is None}
        both = {
            key: (value if key in _IDENTITY else _merge_value(left[key], value))
            for key, value in right.items()
            if key not in fresh and value is not None
        }
        return {**left, **fresh, **both}
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return _merge_indexed(left, right)
    return left if right is None else right


def _add_usage(left: Any, right: Any) -> Any:
    """Token counts are summed, in the nested details too."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {key: _add_usage(left.get(key), right.get(key)) for key in {**left, **right}}
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return left if right is None else right


def _tool_calls(chunks: list[Message]) -> tuple[list[Message], list[Message]]:
    """(calls whose arguments can be read so far, calls whose arguments can't)."""
    calls: list[Message] = []
    invalid: list[Message] = []
    for chunk in chunks:
        arguments = read_partial(chunk.get("args") or "{}")
        call = {"name": chunk.get("name") or "", "id": chunk.get("id")}
        if isinstance(arguments, dict):
            calls.append({**call, "args": arguments, "type": "tool_call"})
        else:
            invalid.append({**call, "args": chunk.get("args"), "error": None, "type": "invalid_tool_call"})
    return calls, invalid


def read_partial(text: str) -> Any:
    """The value of a JSON document that may be cut off anywhere: what is open is closed, a dangling end is dropped.

    None when nothing can be read from it. Looks at most at the last three places where an element ended or began.
    """
    for cut, closers in reversed(_cuts(text)[-4:]):
        try:
            return orjson.loads(text[:cut].rstrip().rstrip(",") + closers)
        except orjson.JSONDecodeError:
            continue
    return None


def _cuts(text: str) -> list[tuple[int, str]]:
    """(length of a beginning, what closes it): after each opening bracket, before each comma, and the whole text."""
    cuts: list[tuple[int, str]] = []
    open_: list[str] = []
    in_string = escaped = False
    for position, char in enumerate(text):
        if in_string:
            in_string, escaped = (char != '"' or escaped), (char == "\\" and not escaped)
        elif char == '"':
            in_string = True
        elif char in "{[":
            open_.append("}" if char == "{" else "]")
            cuts.append((position + 1, "".join(reversed(open_))))
        elif char == ",":
            cuts.append((position, "".join(reversed(open_))))
        elif char in "}]" and (not open_ or open_.pop() != char):
            return cuts
    cuts.append((len(text), ('"' if in_string else "") + "".join(reversed(open_))))
    return cuts
