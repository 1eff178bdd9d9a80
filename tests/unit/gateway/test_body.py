"""Bodies that can't be stored or sent again are refused with 422; everything else is read as it is."""

import asyncio

import pytest
from fastapi import HTTPException
from starlette.types import Message

from runyard_gateway.body import MAX_BODY_BYTES, MAX_DEPTH, StrictRequest, parse_json, to_json

BAD = {
    "an empty body": b"",
    "an open object": b"{",
    "NaN": b'{"input": NaN}',
    "infinity": b'{"input": 1e999}',
    "a lone high surrogate": b'{"input": "\\ud800"}',
    "bytes that are no UTF-8": b'{"input": "\xff"}',
    "a raw control character": b'{"input": "\x00"}',
    "two documents": b"{}{}",
    "a body deeper than the parser can go": b"[" * 2000 + b"]" * 2000,
    "lists one level too deep": b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    "objects one level too deep": b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_bad_json_is_refused_in_the_contracts_words(raw: bytes) -> None:
    with pytest.raises(HTTPException) as refused:
        parse_json(raw)
    assert refused.value.status_code == 422
    assert refused.value.detail.startswith("Invalid JSON in request body")


@pytest.mark.parametrize(
    "raw", [b'{"a": ["x\\u0000"]}', b'{"a\\u0000": 1}', b'"\\u0000"'], ids=["value", "key", "bare"]
)
def test_nul_characters_are_refused_wherever_they_are(raw: bytes) -> None:
    with pytest.raises(HTTPException) as refused:
        parse_json(raw)
    assert (refused.value.status_code, "NUL" in refused.value.detail) == (422, True)


GOOD: dict[str, tuple[bytes, object]] = {
    "the six characters of a NUL escape as text": (b'{"a": "\\\\u0000"}', {"a": "\\u0000"}),
    "lists as deep as is allowed": (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
    "many brackets side by side": (b"[" + b"[]," * 500 + b"[]]", [[]] * 501),
    "a surrogate pair": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "null": (b"null", None),
}


@pytest.mark.parametrize(("raw", "want"), GOOD.values(), ids=GOOD.keys())
def test_good_json_is_read(raw: bytes, want: object) -> None:
    document = parse_json(raw)
    assert want is None or document == want


def test_what_is_read_can_be_written_again() -> None:
    document = parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert to_json(document) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


def _request(*messages: Message, length: int | None = None, cls: type[StrictRequest] = StrictRequest) -> StrictRequest:
    """A request that receives these messages and then nothing any more."""
    coming = list(messages)

    async def receive() -> Message:
        if coming:
            return coming.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return cls({"type": "http", "method": "POST", "headers": headers}, receive)


def _part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_parts_is_read() -> None:
    request = _request(_part(b'{"a":', more=True), _part(b"1}", more=False))
    assert await request.json() == {"a": 1}


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes() -> None:
    with pytest.raises(HTTPException) as refused:
        await _request(length=MAX_BODY_BYTES + 1).body()
    assert refused.value.status_code == 413


class _Impatient(StrictRequest):
    stalled_seconds = 0.01


async def test_a_body_that_stalls_is_given_up() -> None:
    with pytest.raises(HTTPException) as refused:
        await _request(_part(b"{", more=True), cls=_Impatient).body()
    assert (refused.value.status_code, refused.value.detail) == (408, "Request body: nothing came for 0.01 s")
