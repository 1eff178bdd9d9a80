"""Bodies that can't be stored or sent again are refused with 422; everything else is read as it is."""

import asyncio

import pytest
from fastapi import HTTPException
from starlette.types import Message

from runyard_gateway.body import SMALL_BYTES, BodyLimits, Room, StrictRequest, to_json
from runyard_gateway.json_input import MAX_DEPTH, MAX_VALUES, parse_json

BAD = {
    "an empty body": b"",
    "an open object": b"{",
    "NaN": b'{"input": NaN}',
    "infinity": b'{"input": 1e999}',
    "a lone high surrogate": b'{"input": "\\ud800"}',
    "bytes that are no UTF-8": b'{"input": "\xff"}',
    "a raw control character": b'{"input": "\x00"}',
    "a key twice": b'{"a": 1, "b": {"c": "x:y", "c": 2}}',
    "a key twice in another spelling": b'{"a": 1, "\\u0061": 2}',
    "an integer beyond 64 bits": b'{"input": 18446744073709551616}',
    "a very long integer": b"[-" + b"9" * 100 + b"]",
    "too many values": b"[" + b"1," * MAX_VALUES + b"1]",
    "too many empty lists": b"[" + b"[]," * (MAX_VALUES // 2) + b"[]]",
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
    "the same key in two objects": (b'[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
    "colons and quotes in text": (b'{"a:\\"": "\\\\", "b": ": {\\"a\\": 1"}', {'a:"': "\\", "b": ': {"a": 1'}),
    "the largest integers": (b"[18446744073709551615, -9223372036854775808]", [2**64 - 1, -(2**63)]),
    "long digits in text and in fractions": (b'["1234567890123456789012", 1.1234567890123456789, 1e3]', None),
    "many commas in text": (b'"' + b"," * (MAX_VALUES + 1) + b'"', None),
}


@pytest.mark.parametrize(("raw", "want"), GOOD.values(), ids=GOOD.keys())
def test_good_json_is_read(raw: bytes, want: object) -> None:
    document = parse_json(raw)
    assert want is None or document == want


def test_what_is_read_can_be_written_again() -> None:
    document = parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert to_json(document) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


LIMIT = 10 * SMALL_BYTES


def _request(
    *messages: Message,
    headers: dict[str, str] | None = None,
    limits: BodyLimits | None = None,
    cls: type[StrictRequest] = StrictRequest,
) -> StrictRequest:
    """A request that receives these messages and then nothing any more."""
    coming = list(messages)

    async def receive() -> Message:
        if coming:
            return coming.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(_: Message) -> None: ...

    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": "POST", "headers": raw}
    return cls(scope, receive, send, Room(limits or BodyLimits(LIMIT)))


def _part(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


CHUNKED = {"transfer-encoding": "chunked"}


async def test_a_body_in_parts_is_read() -> None:
    request = _request(_part(b'{"a":', more=True), _part(b"1}", more=False), headers=CHUNKED)
    assert await request.json() == {"a": 1}


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes() -> None:
    with pytest.raises(HTTPException) as refused:
        await _request(headers={"content-length": str(LIMIT + 1)}).body()
    assert refused.value.status_code == 413


async def test_a_body_of_unknown_length_is_refused_once_it_is_too_large() -> None:
    part = _part(b" " * SMALL_BYTES, more=True)
    with pytest.raises(HTTPException) as refused:
        await _request(*[part] * 100, headers=CHUNKED).body()
    assert refused.value.status_code == 413


@pytest.mark.parametrize("length", ["-1", "1e3", "+5", " 5 x", "9" * 5000, "\N{SUPERSCRIPT TWO}"])
async def test_a_length_that_is_none_is_refused(length: str) -> None:
    with pytest.raises(HTTPException) as refused:
        await _request(headers={"content-length": length}).body()
    assert refused.value.status_code == 400


class _Impatient(StrictRequest):
    stalled_seconds = 0.01


async def test_a_body_that_stalls_is_given_up() -> None:
    with pytest.raises(HTTPException) as refused:
        await _request(_part(b"{", more=True), headers=CHUNKED, cls=_Impatient).body()
    assert (refused.value.status_code, refused.value.detail) == (408, "Request body: nothing came for 0.01 s")


class _Hasty(StrictRequest):
    body_seconds = 0.01


async def test_a_body_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(HTTPException) as refused:
        await _request(_part(b"{", more=True), headers=CHUNKED, cls=_Hasty).body()
    assert (refused.value.status_code, refused.value.detail) == (408, "Request body: took longer than 0.01 s")


async def test_large_bodies_wait_for_room_and_small_ones_do_not() -> None:
    limits = BodyLimits(LIMIT)
    async with limits.room() as first:
        await first.ensure(LIMIT, 0)
        async with limits.room() as small:
            await small.ensure(SMALL_BYTES, SMALL_BYTES)
        async with limits.room() as second:
            waiting = asyncio.create_task(second.ensure(None, SMALL_BYTES + 1))
            await asyncio.sleep(0)
            assert not waiting.done()
            with pytest.raises(HTTPException) as refused:
                async with limits.room() as third:
                    await third.ensure(SMALL_BYTES + 1, 0, seconds=0.001)
            assert refused.value.status_code == 503
            await limits._give_back(first.held)
            first.held = 0
            await waiting
