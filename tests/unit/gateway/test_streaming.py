"""Live responses against a bare ASGI connection: what is sent, when the client leaves, when the server stops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from runyard_gateway.streaming import BUFFER_BYTES, Heartbeat, LiveResponse, Sink

Produce = Callable[[Sink], Awaitable[None]]


class Connection:
    """A client that reads everything until `stall` is cleared, and leaves when `leave` is set."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.sent = asyncio.Event()
        self.leave = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()

    async def receive(self) -> dict[str, Any]:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        self.messages.append(dict(message))
        self.sent.set()

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages)

    @property
    def complete(self) -> bool:
        return self.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    async def until(self, text: bytes) -> None:
        while text not in self.body:
            self.sent.clear()
            await self.sent.wait()


class Request:
    """One response being served."""

    def __init__(self, produce: Produce, *, whole: bool = False, beat: float = 60) -> None:
        self.connection, self.stopping, self.left = Connection(), asyncio.Event(), 0

        async def gone() -> None:
            self.left += 1

        response = LiveResponse(
            produce,
            media_type="text/event-stream; charset=utf-8",
            headers={"cache-control": "no-store"},
            heartbeat=Heartbeat(b": beat\n", beat),
            stopping=self.stopping,
            gone=gone,
            whole=whole,
        )
        self.task = asyncio.create_task(response({"type": "http"}, self.connection.receive, self.connection.send))


async def forever(sink: Sink) -> None:
    await sink.write(b"first")
    await asyncio.Event().wait()


async def test_what_is_written_is_sent_and_the_response_completed() -> None:
    async def produce(sink: Sink) -> None:
        await sink.write(b"a")
        await sink.write(b"b")

    request = Request(produce)
    await request.task
    start = request.connection.messages[0]
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert dict(start["headers"]) == {
        b"cache-control": b"no-store",
        b"content-type": b"text/event-stream; charset=utf-8",
    }
    assert (request.connection.body, request.connection.complete, request.left) == (b"ab", True, 0)
    assert len(request.connection.messages) == 3, "what is written between two sends goes out as one"


async def test_a_client_that_leaves_stops_the_producer_and_is_reported() -> None:
    stopped = asyncio.Event()

    async def produce(sink: Sink) -> None:
        try:
            await forever(sink)
        finally:
            stopped.set()

    request = Request(produce)
    await request.connection.until(b"first")
    request.connection.leave.set()
    await request.task
    assert (stopped.is_set(), request.left, request.connection.complete) == (True, 1, False)


async def test_a_client_that_leaves_after_the_end_is_not_reported() -> None:
    async def produce(sink: Sink) -> None:
        await sink.write(b"all")

    request = Request(produce)
    request.connection.reading.clear()
    await asyncio.sleep(0)
    request.connection.reading.set()
    await request.connection.until(b"all")
    request.connection.leave.set()
    await request.task
    assert request.left == 0


async def test_heartbeats_come_while_the_producer_is_silent() -> None:
    request = Request(forever, beat=0.001)
    await request.connection.until(b": beat\n: beat\n")
    request.connection.leave.set()
    await request.task


async def test_heartbeats_come_between_events_too() -> None:
    async def produce(sink: Sink) -> None:
        while True:
            await sink.write(b"event\n")
            await asyncio.sleep(0.0005)

    request = Request(produce, beat=0.002)
    await request.connection.until(b": beat\n")
    request.connection.leave.set()
    await request.task


async def test_a_slow_client_stalls_its_producer_and_holds_no_more_than_the_buffer() -> None:
    written = 0
    chunk = b"x" * 1024

    async def produce(sink: Sink) -> None:
        nonlocal written
        while True:
            await sink.write(chunk)
            written += len(chunk)
            await asyncio.sleep(0)

    request = Request(produce, beat=0.001)
    await request.connection.until(chunk)
    request.connection.reading.clear()
    for _ in range(10_000):
        await asyncio.sleep(0)
    assert written - len(request.connection.body) <= 2 * BUFFER_BYTES + 2 * len(chunk)
    held = written
    request.connection.reading.set()
    await request.connection.until(b"x" * (held + 1))
    request.connection.leave.set()
    await request.task


async def test_a_stopping_server_completes_an_event_stream_and_cancels_nothing() -> None:
    request = Request(forever)
    await request.connection.until(b"first")
    request.stopping.set()
    await request.task
    assert (request.connection.complete, request.left) == (True, 0)


async def test_a_stopping_server_cuts_a_whole_document_off() -> None:
    request = Request(forever, whole=True)
    await request.connection.until(b"first")
    request.stopping.set()
    await request.task
    assert (request.connection.complete, request.left) == (False, 0)


async def test_a_connection_that_breaks_while_something_is_sent_counts_as_a_client_that_left() -> None:
    left, started = 0, False

    async def gone() -> None:
        nonlocal left
        left += 1

    async def send(message: Any) -> None:
        nonlocal started
        if started:
            raise OSError("broken pipe")
        started = True

    response = LiveResponse(
        forever,
        media_type="text/event-stream",
        headers={},
        heartbeat=Heartbeat(b"", 60),
        stopping=asyncio.Event(),
        gone=gone,
    )
    await response({"type": "http"}, Connection().receive, send)
    assert left == 1
