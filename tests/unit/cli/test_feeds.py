"""Feeds: who watches a run sees its present status first, then changes, then the end."""

import asyncio

from runyard_api.states import RunState
from runyard_cli.embedded.feeds import Feeds
from runyard_gateway.ports import RunStatus

PENDING, RUNNING = RunStatus(RunState.PENDING), RunStatus(RunState.RUNNING, 1)
SUCCESS = RunStatus(RunState.SUCCESS, 1)


async def test_the_present_status_comes_first_and_a_finished_one_last() -> None:
    feeds = Feeds()
    watching = feeds.open("a", PENDING).watch()
    assert await anext(watching) == PENDING
    feeds.publish("a", RUNNING)
    assert await anext(watching) == RUNNING
    feeds.publish("a", SUCCESS)
    assert [status async for status in watching] == [SUCCESS]


async def test_a_slow_watcher_sees_the_newest_status_alone() -> None:
    feeds = Feeds()
    watching = feeds.open("a", PENDING).watch()
    await anext(watching)
    feeds.publish("a", RUNNING)
    feeds.publish("a", SUCCESS)
    assert [status async for status in watching] == [SUCCESS]


async def test_a_waiting_watcher_is_woken() -> None:
    feeds = Feeds()
    watching = feeds.open("a", PENDING).watch()
    await anext(watching)
    waiting = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    feeds.publish("a", RUNNING)
    assert await asyncio.wait_for(waiting, 1) == RUNNING


async def test_a_vanished_run_ends_the_watching() -> None:
    feeds = Feeds()
    watching = feeds.open("a", PENDING).watch()
    await anext(watching)
    feeds.publish("a", None)
    assert [status async for status in watching] == []


async def test_the_feed_of_a_finished_run_is_not_kept() -> None:
    feeds = Feeds()
    feeds.open("a", PENDING)
    feeds.publish("a", SUCCESS)
    assert await anext(feeds.open("a", RUNNING).watch()) == RUNNING
