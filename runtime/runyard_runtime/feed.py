"""The server's side of a run's events: the live ring that readers follow, and the batches on their way to the log.

Everything here belongs to the server loop. `attempt.py` pushes, the events route reads; `event_log` of the store keeps.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import structlog

from runyard_api.errors import Fenced, Unavailable
from runyard_api.events import Event, EventId

RING_BYTES = 4 * 1024 * 1024
FLUSH_SECONDS = 0.05
_LONGEST_CHUNK = 256 * 1024
_log = structlog.get_logger(__name__)

ReadLog = Callable[[EventId | None], Awaitable[list[Event]]]
"""Events of the run in the log after an id, in order: at least one if there are any."""


class Feed:
    """The newest events of one attempt as lines, at most `limit` bytes of those that the log already has."""

    def __init__(self, *, base: int, attempt: int, limit: int = RING_BYTES) -> None:
        self._first = EventId.of(base, attempt, 1)
        self._limit = limit
        self._lines: list[bytes] = []
        self._dropped = 0
        self._logged = 0
        self._bytes = 0
        self._ended = False
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def size(self) -> int:
        return self._bytes

    @property
    def last(self) -> EventId:
        """The id of the newest event; of the one before the first while there is none."""
        return EventId(self._first.base, self._first.seq + self._dropped + len(self._lines) - 1)

    def push(self, events: list[Event]) -> None:
        """Adds events, whose sequences follow one another, and wakes the readers."""
        lines = [event.line() for event in events]
        self._lines += lines
        self._bytes += sum(map(len, lines))
        self._wake()

    def logged(self, count: int) -> None:
        """Says that the next `count` events are in the log: only such ones may leave the ring."""
        self._logged += count
        if self._bytes <= self._limit:
            return
        drop = 0
        while self._bytes > self._limit * 3 // 4 and self._dropped + drop < self._logged:
            self._bytes -= len(self._lines[drop])
            drop += 1
        del self._lines[:drop]
        self._dropped += drop

    def end(self) -> None:
        """No event follows; readers end when they have read what there is."""
        self._ended = True
        self._wake()

    async def read(
        self, after: EventId | None, read_log: ReadLog, *, keepalive: float = 5.0
    ) -> AsyncGenerator[bytes, None]:
        """Lines after `after` (None: from the first) until the end; an empty line after `keepalive` seconds of silence.

        What the ring no longer has, and what earlier attempts emitted, comes from the log.
        """
        position = self._start(after)
        while True:
            if position is None or not self._covers(position):
                older = await read_log(position)
                if not older:
                    position = EventId(self._first.base, self._first.seq + self._dropped - 1)
                    continue
                yield b"".join(event.line() for event in older)
                position = older[-1].id
                continue
            chunk, count = self._chunk(position.seq - self._first.seq + 1 - self._dropped)
            if chunk:
                position = EventId(position.base, position.seq + count)
                yield chunk
            elif self._ended:
                return
            elif not await self._changed(keepalive):
                yield b"\n"

    def _start(self, after: EventId | None) -> EventId | None:
        """Where to begin: reading the log can be spared when this is the first attempt and the ring is whole."""
        whole = self._first.attempt == 1 and not self._dropped
        before_first = EventId(self._first.base, self._first.seq - 1)
        if after is None or after < before_first:
            return before_first if whole else after
        return min(after, self.last)

    def _covers(self, position: EventId) -> bool:
        return position >= EventId(self._first.base, self._first.seq + self._dropped - 1)

    def _chunk(self, start: int) -> tuple[bytes, int]:
        """Lines from index `start`, up to about 256 KiB, and how many they are."""
        if start >= len(self._lines):
            return b"", 0
        if self._bytes <= _LONGEST_CHUNK:
            return b"".join(self._lines[start:]), len(self._lines) - start
        size, stop = 0, start
        while stop < len(self._lines) and size < _LONGEST_CHUNK:
            size += len(self._lines[stop])
            stop += 1
        return b"".join(self._lines[start:stop]), stop - start

    async def _changed(self, seconds: float) -> bool:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiting)
        return True

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class LogWriter:
    """Writes a run's events to the log, those of at most 50 ms in one batch; runs shorter than that write none of their
    own (the transaction that ends them carries them)."""

    def __init__(self, append: Callable[[list[Event]], Awaitable[None]], logged: Callable[[list[Event]], None]) -> None:
        """`append` stores a batch and may raise Unavailable (tried again) or Fenced (nothing more is written)."""
        self._append, self._logged = append, logged
        self._pending: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, events: list[Event]) -> None:
        self._pending += events
        self._arm()

    async def close(self) -> list[Event]:
        """Stops writing, after the batch under way, and returns what isn't in the log."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        return self._pending

    def _arm(self) -> None:
        if self._pending and not self._closed and self._timer is None and self._flushing is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._flushing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        batch, delay = self._pending, 0.1
        self._pending = []
        while True:
            try:
                await self._append(batch)
                break
            except Fenced:
                self._closed = True
                return
            except Unavailable as error:
                if self._closed:
                    self._pending = batch + self._pending
                    return
                _log.warning("event log waits for the database", error=error.detail)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 2.0)
        self._logged(batch)
        self._flushing = None
        self._arm()
