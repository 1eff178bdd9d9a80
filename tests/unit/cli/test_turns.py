"""Threads' turns: one at a time for each thread, again after a failure, later when asked."""

import asyncio

from runyard_api.errors import Unavailable
from runyard_cli.embedded.turns import Turns


async def test_a_thread_that_is_woken_during_its_turn_has_another_one_after_it() -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()
    gate = asyncio.Event()

    async def turn(thread_id: str) -> None:
        begun.put_nowait(thread_id)
        await gate.wait()

    turns = Turns(turn)
    turns.wake("a")
    turns.wake("b")
    assert {await begun.get(), await begun.get()} == {"a", "b"}
    turns.wake("a")
    turns.wake("a")
    assert begun.empty()
    gate.set()
    assert await asyncio.wait_for(begun.get(), 5) == "a"
    await turns.stop()
    assert begun.empty()


async def test_a_turn_that_fails_is_tried_again_whatever_it_raised() -> None:
    errors: list[Exception] = [Unavailable("no answer"), RuntimeError("a bug")]
    ended = asyncio.Event()

    async def turn(_: str) -> None:
        if errors:
            raise errors.pop()
        ended.set()

    turns = Turns(turn)
    turns.wake("a")
    await asyncio.wait_for(ended.wait(), 5)
    await turns.stop()


async def test_the_sooner_of_two_times_counts_and_nothing_comes_after_the_stop() -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def turn(thread_id: str) -> None:
        begun.put_nowait(thread_id)

    turns = Turns(turn)
    turns.wake_in("a", 3600)
    turns.wake_in("a", 0)
    turns.wake_in("a", 3600)
    assert await asyncio.wait_for(begun.get(), 5) == "a"
    turns.wake_in("a", 0)
    await turns.stop()
    turns.wake("a")
    await asyncio.sleep(0)
    assert begun.empty()
