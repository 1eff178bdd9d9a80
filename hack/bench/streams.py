"""Many streams without a word on one gateway replica: what each costs in memory, and all of them in CPU.

Used by __main__.py.
"""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from hack.bench.load import Client, Latency
from hack.bench.processes import uses

STREAMS = 2000
_RUNS = 5
_AT_ONCE = 50
_LOOK_SECONDS = 20


@dataclass(frozen=True)
class Idle:
    """KiB of the gateway and of the runtime for each stream, the gateway's share of a core (%), and how long a new
    stream waits for its first event meanwhile."""

    gateway_kib: float
    runtime_kib: float
    gateway_share: float
    latency: Latency


async def idle_streams(one: Client, *, gateway: str, runtime: str) -> Idle:
    """Opens STREAMS streams of runs that say nothing, through `one` replica; names are parts of `processes`."""
    _allow_files(3 * STREAMS)
    before = uses()
    async with _opened(one):
        await asyncio.sleep(3)
        opened = uses()
        await asyncio.sleep(_LOOK_SECONDS)
        share = (uses()[gateway].cpu - opened[gateway].cpu) / _LOOK_SECONDS * 100
        latency = await one.first_events("stub", 50)
    grown = {part: (opened[part].memory - before[part].memory) / STREAMS / 1024 for part in (gateway, runtime)}
    return Idle(grown[gateway], grown[runtime], share, latency)


@asynccontextmanager
async def _opened(client: Client) -> AsyncIterator[None]:
    runs = [await client.begin("quiet", {"seconds": 600.0}) for _ in range(_RUNS)]
    places = asyncio.Semaphore(_AT_ONCE)
    async with AsyncExitStack() as stack:

        async def one(number: int) -> None:
            async with places:
                answer = await stack.enter_async_context(client.join(*runs[number % _RUNS]))
                answer.raise_for_status()
                await answer.content.readuntil(b"\r\n\r\n")  # the run's first event: the stream goes all the way

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(STREAMS):
                    group.create_task(one(number))
            yield
        finally:
            for run in runs:
                await client.cancel(*run)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < STREAMS + 200:
        raise RuntimeError(f"{STREAMS} streams need more open files than the {hard} this process may have")
