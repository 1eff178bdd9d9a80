"""The legacy messages trio: what has come so far, accumulated."""

from typing import Any

import orjson
import pytest

from runyard_gateway.messages import LegacyMessages, merge_chunks, read_partial, whole_message


def chunk(content: Any = "", **more: Any) -> dict[str, Any]:
    return {"type": "AIMessageChunk", "id": "m1", "content": content, "additional_kwargs": {}, **more}


def fed(*messages: dict[str, Any]) -> list[tuple[str, Any]]:
    trio = LegacyMessages()
    return [(n, orjson.loads(d)) for m in messages for n, d in trio.add(orjson.dumps([m, {"node": "n"}]))]


def test_chunks_accumulate_into_partials_after_one_metadata() -> None:
    events = fed(chunk("He"), chunk("llo"), chunk(" there"))
    assert [name for name, _ in events] == ["messages/metadata", *["messages/partial"] * 3]
    assert events[0][1] == {"m1": {"metadata": {"node": "n"}}}
    assert [body[0]["content"] for _, body in events[1:]] == ["He", "Hello", "Hello there"]
    assert {body[0]["type"] for _, body in events[1:]} == {"ai"}


def test_a_whole_message_is_complete() -> None:
    events = fed({"type": "tool", "id": "t", "content": "42"})
    assert [name for name, _ in events] == ["messages/metadata", "messages/complete"]
    assert events[1][1] == [{"type": "tool", "id": "t", "content": "42"}]


def test_messages_of_different_ids_are_apart() -> None:
    events = fed(chunk("a"), chunk("x", id="m2"), chunk("b"))
    assert [body[0]["content"] for name, body in events if name == "messages/partial"] == ["a", "x", "ab"]


def test_data_of_another_form_gives_nothing() -> None:
    trio = LegacyMessages()
    assert [trio.add(raw) for raw in (b"{}", b"[1]", b"[1,2]", b"null")] == [[]] * 4


def test_tool_calls_are_read_while_their_arguments_arrive() -> None:
    pieces = [
        chunk(tool_call_chunks=[{"name": "find", "args": "", "id": "c1", "index": 0}]),
        chunk(tool_call_chunks=[{"name": None, "args": '{"city": "Par', "id": None, "index": 0}]),
        chunk(tool_call_chunks=[{"name": None, "args": 'is"}', "id": None, "index": 0}]),
        chunk(tool_call_chunks=[{"name": "add", "args": "{}", "id": "c2", "index": 1}]),
    ]
    partials = [body[0] for name, body in fed(*pieces) if name == "messages/partial"]
    assert [[c["args"] for c in p["tool_calls"]] for p in partials] == [
        [{}],
        [{"city": "Par"}],
        [{"city": "Paris"}],
        [{"city": "Paris"}, {}],
    ]
    assert [c["id"] for c in partials[-1]["tool_calls"]] == ["c1", "c2"]
    assert "tool_call_chunks" not in partials[-1]


def test_arguments_that_are_no_object_are_invalid_calls() -> None:
    message = whole_message(chunk(tool_call_chunks=[{"name": "f", "args": "}", "id": "c", "index": 0}]))
    assert (message["tool_calls"], message["invalid_tool_calls"][0]["args"]) == ([], "}")


def test_content_blocks_merge_by_index() -> None:
    left = chunk([{"type": "text", "text": "He", "index": 0}])
    right = chunk([{"type": "text", "text": "y", "index": 0}, {"type": "text", "text": "!", "index": 1}])
    assert [b["text"] for b in merge_chunks(left, right)["content"]] == ["Hey", "!"]


def test_text_joins_blocks() -> None:
    merged = merge_chunks(chunk("He"), chunk([{"type": "image", "url": "u"}]))
    assert merged["content"] == [{"type": "text", "text": "He"}, {"type": "image", "url": "u"}]


def test_token_counts_are_summed() -> None:
    left = chunk(usage_metadata={"input_tokens": 5, "output_tokens": 1, "input_token_details": {"cached": 2}})
    right = chunk(usage_metadata={"input_tokens": 0, "output_tokens": 3, "input_token_details": {"cached": 1}})
    merged = merge_chunks(left, merge_chunks(right, chunk()))
    assert merged["usage_metadata"] == {"input_tokens": 5, "output_tokens": 4, "input_token_details": {"cached": 3}}


PARTIAL = {
    "whole": ('{"a": 1}', {"a": 1}),
    "nothing but the start": ("{", {}),
    "inside a text": ('{"a": "x', {"a": "x"}),
    "inside a key": ('{"a": 1, "b', {"a": 1}),
    "after a colon": ('{"a": 1, "b":', {"a": 1}),
    "after a comma": ('{"a": 1,', {"a": 1}),
    "inside a word": ('{"a": tr', {}),
    "inside a list": ('{"a": [1, 2', {"a": [1, 2]}),
    "an escape at the end": ('{"a": "x\\', {}),
    "brackets inside a text": ('{"a": "}]', {"a": "}]"}),
    "hopeless": ("}", None),
}


@pytest.mark.parametrize(("text", "want"), PARTIAL.values(), ids=PARTIAL.keys())
def test_a_cut_off_document_is_read_as_far_as_it_goes(text: str, want: Any) -> None:
    assert read_partial(text) == want
