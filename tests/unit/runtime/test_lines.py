"""The streamed answer: sent as it comes, its source closed however it ends."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from runyard_runtime.lines import LinesResponse


class Reader:
    """An ASGI client; `go` takes it away."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self._gone, self.heard = asyncio.Event(), asyncio.Event()

    def go(self) -> None:
        self._gone.set()

    async def receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.got.append(message)
        if message.get("body"):
            self.heard.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)


async def lines(
    closed: asyncio.Event, *, then: Exception | None = None, wait: bool = False
) -> AsyncGenerator[bytes, None]:
    try:
        yield b"1\n"
        if wait:
            await asyncio.Event().wait()
        if then:
            raise then
        yield b"2\n"
    finally:
        closed.set()


async def test_all_lines_are_sent_and_the_answer_ends() -> None:
    reader, closed = Reader(), asyncio.Event()
    await LinesResponse(lines(closed))({"type": "http"}, reader.receive, reader.send)
    assert reader.body == b"1\n2\n"
    assert not reader.got[-1].get("more_body")
    assert closed.is_set()


async def test_a_reader_that_goes_away_ends_the_answer_and_closes_its_source() -> None:
    reader, closed = Reader(), asyncio.Event()
    answering = asyncio.create_task(
        LinesResponse(lines(closed, wait=True))({"type": "http"}, reader.receive, reader.send)
    )
    await reader.heard.wait()
    reader.go()
    await answering
    assert closed.is_set()
    assert reader.got[-1]["more_body"], "a stream that was left doesn't look like a whole one"


async def test_a_source_that_breaks_is_told() -> None:
    reader, closed = Reader(), asyncio.Event()
    with pytest.raises(ValueError, match="broke"):
        await LinesResponse(lines(closed, then=ValueError("broke")))({"type": "http"}, reader.receive, reader.send)
    assert closed.is_set()


async def test_a_cancelled_answer_closes_its_source() -> None:
    reader, closed = Reader(), asyncio.Event()
    answering = asyncio.create_task(
        LinesResponse(lines(closed, wait=True))({"type": "http"}, reader.receive, reader.send)
    )
    await reader.heard.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert closed.is_set()
