"""The live ring and the way of events to the log."""

import asyncio

import pytest

from runyard_api.errors import Fenced, Unavailable
from runyard_api.events import Event, EventId
from runyard_runtime.emit import Emitter
from runyard_runtime.feed import Feed, LogWriter


def _events(first: int, last: int, *, attempt: int = 1, size: int = 10) -> list[Event]:
    return [Event(EventId.of(5, attempt, n), "custom", (), b'"' + b"x" * size + b'"') for n in range(first, last + 1)]


class Log:
    """What is in the log, and how often it was read."""

    def __init__(self, events: list[Event]) -> None:
        self.events, self.reads = events, 0

    async def read(self, after: EventId | None) -> list[Event]:
        self.reads += 1
        return [event for event in self.events if after is None or event.id > after][:3]


async def _read(feed: Feed, log: Log, after: EventId | None = None) -> list[EventId]:
    text = b"".join([chunk async for chunk in feed.read(after, log.read)])
    return [Event.from_line(line).id for line in text.splitlines()]


async def test_a_reader_gets_what_is_there_and_what_comes() -> None:
    feed, log = Feed(base=5, attempt=1), Log([])
    feed.push(_events(1, 2))
    reading = asyncio.create_task(_read(feed, log))
    await asyncio.sleep(0)
    feed.push(_events(3, 3))
    await asyncio.sleep(0)
    feed.end()
    assert await reading == [e.id for e in _events(1, 3)]
    assert log.reads == 0


@pytest.mark.parametrize(
    ("after", "first"), [(None, 1), (EventId(0, 0), 1), (EventId.of(5, 1, 2), 3), (EventId(9, 1), 5)]
)
async def test_a_reader_goes_on_after_the_id_it_names(after: EventId | None, first: int) -> None:
    feed = Feed(base=5, attempt=1)
    feed.push(_events(1, 4))
    feed.end()
    assert await _read(feed, Log([]), after) == [e.id for e in _events(first, 4)]


async def test_what_left_the_ring_comes_from_the_log() -> None:
    feed, events = Feed(base=5, attempt=1, limit=200), _events(1, 20)
    feed.push(events)
    assert feed.size > 200  # nothing is in the log yet
    feed.logged(18)
    assert feed.size <= 200
    feed.end()
    for after, first in ((None, 1), (EventId.of(5, 1, 4), 5), (EventId.of(5, 1, 19), 20)):
        assert await _read(feed, Log(events[:18]), after) == [e.id for e in events[first - 1 :]]


async def test_a_later_attempt_gives_the_earlier_ones_events_first() -> None:
    feed, earlier = Feed(base=5, attempt=2), _events(1, 7)
    feed.push(_events(1, 2, attempt=2))
    feed.end()
    want = [e.id for e in earlier] + [e.id for e in _events(1, 2, attempt=2)]
    assert await _read(feed, Log(earlier)) == want
    assert await _read(feed, Log(earlier), EventId.of(5, 1, 6)) == want[6:]
    assert await _read(feed, Log(earlier), EventId.of(5, 2, 1)) == want[8:]


async def test_a_silent_run_keeps_its_readers_connections_alive() -> None:
    feed = Feed(base=5, attempt=1)
    chunks = feed.read(None, Log([]).read, keepalive=0.01)
    assert await anext(chunks) == b"\n"
    await chunks.aclose()


async def test_events_of_50_ms_are_one_batch_and_the_rest_stays_for_the_end() -> None:
    written: list[list[Event]] = []
    told: list[int] = []

    async def append(events: list[Event]) -> None:
        written.append(events)

    writer = LogWriter(append, lambda events: told.append(len(events)))
    writer.add(_events(1, 2))
    writer.add(_events(3, 3))
    await asyncio.sleep(0.1)
    writer.add(_events(4, 4))
    assert await writer.close() == _events(4, 4)
    assert (written, told) == ([_events(1, 3)], [3])


async def test_a_database_that_is_down_is_waited_for_and_a_fence_ends_it() -> None:
    answers: list[Exception | None] = [Unavailable("down"), None, Fenced("gone")]
    written: list[list[Event]] = []

    async def append(events: list[Event]) -> None:
        if answer := answers.pop(0):
            raise answer
        written.append(events)

    writer = LogWriter(append, lambda _: None)
    writer.add(_events(1, 1))
    await asyncio.sleep(0.25)
    assert written == [_events(1, 1)]
    writer.add(_events(2, 2))
    await asyncio.sleep(0.1)
    writer.add(_events(3, 3))
    await asyncio.sleep(0.1)
    assert (answers, written) == ([], [_events(1, 1)])


async def test_the_emitter_wakes_once_for_many_and_waits_when_the_log_is_behind() -> None:
    wakes: list[None] = []
    loop = asyncio.get_running_loop()
    emitter = Emitter(base=5, attempt=3, wake=lambda: wakes.append(None), loop_call=loop.call_soon)
    emitter.emit("custom", ("a:1",), b"1")
    emitter.emit("custom", (), b"2")
    assert len(wakes) == 1
    taken = emitter.take()
    assert [str(event.id) for event in taken] == ["5-3000000001", "5-3000000002"]
    assert (taken[0].ns, emitter.take()) == (("a:1",), [])
    emitter.emit("custom", (), b"x" * 2_000_000)
    assert (len(wakes), emitter.behind) == (2, True)
    waiting = asyncio.create_task(emitter.room())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    emitter.logged(2_000_002)
    await asyncio.wait_for(waiting, 1)
