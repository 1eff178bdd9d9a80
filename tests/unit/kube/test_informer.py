"""How the informer recovers: what it does after each kind of end, and how long it waits. Fake server, fake time."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from runyard_api.crd import Manifest
from runyard_api.errors import Invalid
from runyard_kube.client import KubeClient, Listing, WatchEvent
from runyard_kube.errors import Gone, KubeError, TooManyRequests, Unavailable
from runyard_kube.informer import BACKOFF, Informer, Target
from runyard_kube.resources import RUNS

Step = KubeError | WatchEvent | float
"""In a script of a watch: fail, deliver, or let seconds pass. A watch whose script is used up ends like a time-out."""


def _object(name: str, version: int, value: str = "") -> Manifest:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def _modified(name: str, version: int, value: str = "") -> WatchEvent:
    return WatchEvent("MODIFIED", _object(name, version, value))


@dataclass
class FakeServer:
    """Plays scripts: one list or error per list call, one list of steps per watch; after the last watch, silence."""

    lists: list[Listing | KubeError]
    watches: list[list[Step]]
    now: float = 0.0
    asked: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(self, *_: Any, **__: Any) -> Listing:
        self.asked.append("list")
        answer = self.lists.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def watch(self, *_: Any, resource_version: str, **__: Any) -> AsyncGenerator[WatchEvent, None]:
        self.asked.append(f"watch {resource_version}")
        if not self.watches:
            self.finished.set()
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, KubeError):
                raise step
            if isinstance(step, WatchEvent):
                yield step
            else:
                self.now += step

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def _value(manifest: Manifest) -> tuple[str, str]:
    if manifest["value"] == "unreadable":
        raise Invalid("cannot be read")
    return manifest["metadata"]["name"], manifest["value"]


Value = tuple[str, str]


@asynccontextmanager
async def _played(
    server: FakeServer, listener: Callable[[Value | None, Value | None], None] | None = None
) -> AsyncIterator[Informer[Value]]:
    """An informer that has gone through the whole script."""
    client = cast(KubeClient, server)
    informer = Informer(client, Target(RUNS, "ns"), _value, sleep=server.sleep, clock=lambda: server.now)
    if listener is not None:
        informer.subscribe(listener)
    informer.start()
    try:
        async with asyncio.timeout(2):
            await server.finished.wait()
        yield informer
    finally:
        await informer.stop()


EMPTY = Listing([], "10")


async def test_a_watch_that_ends_after_a_while_goes_on_at_once_from_the_version_reached() -> None:
    bookmark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "40"}})
    server = FakeServer([EMPTY], [[_modified("a", 20), 600.0], [60.0, bookmark, 540.0]])
    async with _played(server) as informer:
        assert server.asked == ["list", "watch 10", "watch 20", "watch 40"]
        assert (server.waits, informer.failures) == ([], 0)


async def test_a_watch_that_breaks_after_a_while_goes_on_at_once() -> None:
    server = FakeServer([EMPTY], [[30.0, Unavailable("broke")]])
    async with _played(server):
        assert (server.asked, server.waits) == (["list", "watch 10", "watch 10"], [])


async def test_waits_grow_while_the_server_is_away_and_start_anew_after_it_was_back() -> None:
    away: list[list[Step]] = [[Unavailable("refused")] for _ in range(9)]
    server = FakeServer([EMPTY], [*away, [_modified("a", 20), 5.0, Unavailable("broke")], [Unavailable("refused")]])
    async with _played(server):
        assert server.waits == [*BACKOFF, BACKOFF[-1], BACKOFF[-1], BACKOFF[0]]


async def test_a_server_that_accepts_and_ends_watches_at_once_is_not_hammered() -> None:
    server = FakeServer([EMPTY], [[], [], []])
    async with _played(server):
        assert server.waits == [1.0, 1.0, 2.0]


async def test_a_failed_list_is_tried_again_and_nothing_is_synced_before() -> None:
    server = FakeServer([Unavailable("refused"), Unavailable("refused"), EMPTY], [])
    async with _played(server) as informer:
        assert server.asked == ["list", "list", "list", "watch 10"]
        assert server.waits == [1.0, 1.0]
        assert informer.synced.is_set()


async def test_retry_after_lengthens_a_wait_and_never_shortens_it() -> None:
    slow = [TooManyRequests("slow down", code=429, retry_after=seconds) for seconds in (30.0, 0.5)]
    server = FakeServer([EMPTY], [[slow[0]], [slow[1]]])
    async with _played(server):
        assert server.waits == [30.0, 1.0]


async def test_a_version_too_old_is_listed_again_at_once_and_only_then_with_waits() -> None:
    server = FakeServer([EMPTY, EMPTY, EMPTY], [[Gone("too old", code=410)], [Gone("too old", code=410)]])
    async with _played(server):
        assert server.asked == ["list", "watch 10", "list", "watch 10", "list", "watch 10"]
        assert server.waits == [1.0]


async def test_a_list_after_a_gap_reports_exactly_what_differs() -> None:
    before = Listing([_object("same", 1, "x"), _object("changed", 2, "old"), _object("gone", 3)], "10")
    after = Listing([_object("same", 1, "x"), _object("changed", 12, "new"), _object("new", 13)], "20")
    changes: list[tuple[Value | None, Value | None]] = []
    server = FakeServer([before, after], [[5.0, Gone("too old")]])
    async with _played(server, lambda old, new: changes.append((old, new))) as informer:
        assert set(changes[3:]) == {
            (("changed", "old"), ("changed", "new")),
            (("gone", ""), None),
            (None, ("new", "")),
        }
        assert len(changes) == 6
        assert {name for name, _ in informer.items()} == {"same", "changed", "new"}


async def test_an_object_that_cannot_be_read_is_left_out_and_the_rest_goes_on() -> None:
    listing = Listing([_object("bad", 1, "unreadable"), _object("good", 2)], "10")
    server = FakeServer([listing], [[_modified("good", 11, "unreadable"), _modified("late", 12), 5.0]])
    async with _played(server) as informer:
        assert informer.items() == (("late", ""),)
        assert server.waits == []


async def test_a_listener_that_breaks_costs_a_new_list_and_not_the_watch() -> None:
    calls = 0

    def breaks_once(old: Value | None, new: Value | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("listener")

    server = FakeServer([EMPTY, Listing([_object("a", 20)], "30")], [[_modified("a", 20)]])
    async with _played(server, breaks_once) as informer:
        assert server.asked == ["list", "watch 10", "list", "watch 30"]
        assert informer.get("a") == ("a", "")


async def test_a_listener_hears_nothing_after_it_has_left() -> None:
    heard: list[Value | None] = []
    server = FakeServer([EMPTY], [[_modified("a", 20), _modified("b", 21), 5.0]])
    informer = Informer(cast(KubeClient, server), Target(RUNS, "ns"), _value, clock=lambda: server.now)

    def once(old: Value | None, new: Value | None) -> None:
        heard.append(new)
        leave()

    leave = informer.subscribe(once)
    informer.start()
    await server.finished.wait()
    await informer.stop()
    assert heard == [("a", "")]
    leave()


async def test_stop_ends_it_in_the_middle_of_a_long_wait() -> None:
    waiting = asyncio.Event()

    async def forever(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    server = FakeServer([Unavailable("refused")], [])
    informer = Informer(cast(KubeClient, server), Target(RUNS, "ns"), _value, sleep=forever)
    informer.start()
    await waiting.wait()
    async with asyncio.timeout(1):
        await informer.stop()


@pytest.mark.parametrize("times", [1, 2])
async def test_starting_twice_is_starting_once(times: int) -> None:
    server = FakeServer([EMPTY], [])
    client = cast(KubeClient, server)
    informer = Informer(client, Target(RUNS, "ns"), _value, sleep=server.sleep, clock=lambda: server.now)
    for _ in range(times):
        informer.start()
    await server.finished.wait()
    await informer.stop()
    assert server.asked == ["list", "watch 10"]
