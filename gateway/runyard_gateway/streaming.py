"""A response that is produced while it is sent: a bounded buffer, a steady heartbeat, and an eye on the client.

Used for event streams (heartbeat comments) and for waits (newlines before one JSON document). Written against ASGI
itself, because the end of the connection must be noticed at once whatever the producer is doing.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

log = structlog.get_logger(__name__)
BUFFER_BYTES = 64 * 1024
"""What may wait for a slow client before its producer stalls."""

Produce = Callable[["Sink"], Awaitable[None]]


class Sink:
    """Where a producer writes. What it writes between two sends goes out as one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._filled, self._room = asyncio.Event(), asyncio.Event()
        self.closed = False

    async def write(self, data: bytes) -> None:
        """Takes bytes; waits while more than BUFFER_BYTES haven't been taken by the client's connection."""
        self._put(data)
        if self._size > BUFFER_BYTES:
            self._room.clear()
            await self._room.wait()

    def beat(self, data: bytes) -> None:
        """Takes a heartbeat, unless something is waiting to be sent: then the client is slow, not idle."""
        if not self._parts:
            self._put(data)

    def close(self) -> None:
        """Nothing more comes."""
        self.closed = True
        self._filled.set()

    async def drain(self, send: Send) -> None:
        """Sends what is written, until the sink is closed and empty."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            if self._parts:
                data = b"".join(self._parts)
                self._parts, self._size = [], 0
                self._room.set()
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if self.closed and not self._parts:
                return

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        self._filled.set()


@dataclass(frozen=True)
class Heartbeat:
    """What is sent every so many seconds, on a fixed timer: clients learn the cadence and miss it."""

    data: bytes
    seconds: float


async def _nothing() -> None: ...


class LiveResponse(Response):
    """Runs `produce` and sends what it writes.

    When the client goes away first, the producer is cancelled and `gone` is called. When `stopping` is set (the server
    shuts down) the response ends: an event stream cleanly, and its reader comes back with its last id; a wait
    (`whole`) without the last chunk, because half a document must not look like a whole one.
    """

    def __init__(
        self,
        produce: Produce,
        *,
        media_type: str,
        headers: Mapping[str, str],
        heartbeat: Heartbeat,
        stopping: asyncio.Event,
        gone: Callable[[], Awaitable[None]] = _nothing,
        whole: bool = False,
    ) -> None:
        self.status_code, self.media_type, self.background = 200, media_type, None
        self.init_headers(headers)
        self._produce, self._heartbeat, self._stopping = produce, heartbeat, stopping
        self._gone, self._whole = gone, whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sink = Sink()
        drained = asyncio.create_task(sink.drain(send))
        left = asyncio.create_task(_client_left(receive))
        stopped = asyncio.create_task(self._stopping.wait())
        others = [asyncio.create_task(self._run(sink)), asyncio.create_task(self._beat(sink)), left, stopped]
        produced = False
        try:
            await asyncio.wait({drained, left, stopped}, return_when=asyncio.FIRST_COMPLETED)
            produced = sink.closed
        finally:
            await _cancel([drained, *others])
        if _ended_well(drained) or (_ended_well(stopped) and not self._whole):
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self._stopping.is_set() and not produced:
            await self._gone()

    async def _run(self, sink: Sink) -> None:
        try:
            await self._produce(sink)
        except Exception:
            log.exception("stream broke")
        finally:
            sink.close()

    async def _beat(self, sink: Sink) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += self._heartbeat.seconds
            await asyncio.sleep(due - loop.time())
            sink.beat(self._heartbeat.data)


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _ended_well(task: asyncio.Task[object]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _cancel(tasks: list[asyncio.Task[object]]) -> None:
    """Cancels what still runs and waits until it has stopped."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
