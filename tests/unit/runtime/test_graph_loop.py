"""The graphs' loop goes on whatever user code does to it, and ends in bounded time."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from runyard_runtime.graph_loop import GraphLoop


@pytest.fixture
async def loop() -> AsyncIterator[GraphLoop]:
    started = GraphLoop(slots=1)
    started.start()
    yield started
    await started.stop()


async def _exit() -> None:
    raise SystemExit(3)


async def _stop_it() -> None:
    asyncio.get_running_loop().stop()


async def _answer() -> int:
    return 42


@pytest.mark.parametrize("harm", [_exit, _stop_it])
async def test_work_after_harm_is_done(loop: GraphLoop, harm: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with contextlib.suppress(SystemExit):
        await loop.run(harm())
    assert await loop.run(_answer()) == 42


async def test_the_last_work_waits_for_a_blocked_loop_no_longer_than_it_is_told(loop: GraphLoop) -> None:
    blocked, go_on, done = threading.Event(), threading.Event(), threading.Event()

    async def block() -> None:
        blocked.set()
        go_on.wait()

    async def close() -> None:
        done.set()

    blocking = loop.submit(block())
    await asyncio.to_thread(blocked.wait)
    await loop.finish(close(), patience=0.01)
    assert not done.is_set()
    go_on.set()
    await asyncio.wrap_future(blocking)
    await loop.finish(close(), patience=5)
    assert done.is_set()
