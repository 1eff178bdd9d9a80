"""Events per second that a gateway relays, beside bare uvicorn that serves the same bytes from memory.

Used by __main__.py. Readers wait on a run that is about to emit many small events; all of them read all of it.
"""

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from hack.bench.load import FRAME_END, Client
from hack.bench.processes import BARE, uses

READERS = 20
EVENTS = 3000
_HEAD_START_SECONDS = 1.5


@dataclass(frozen=True)
class Rate:
    """Events per second over all readers, and the server's CPU microseconds for each; `sample`: one reader's bytes."""

    per_second: float
    micros: float
    sample: bytes


async def through(client: Client, part: str) -> Rate:
    """From a run's pod through the gateway; `part` is the gateway's name in `processes`."""
    thread, run = await client.begin("burst", {"seconds": _HEAD_START_SECONDS, "count": EVENTS})
    reading = [asyncio.create_task(_read(client.join(thread, run))) for _ in range(READERS)]
    await asyncio.sleep(_HEAD_START_SECONDS / 2)
    before = uses()[part].cpu
    reads = await asyncio.gather(*reading)
    return _rate(reads, uses()[part].cpu - before)


async def bare(sample: bytes) -> Rate:
    """From uvicorn alone: one write for each event, to as many readers."""
    async with _uvicorn(sample) as url, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        before = uses()[BARE].cpu
        reads = await asyncio.gather(*(_read(http.get(url)) for _ in range(READERS)))
        return _rate(reads, uses()[BARE].cpu - before)


@dataclass(frozen=True)
class _Reading:
    """One reader's bytes, and when the burst began and ended for it."""

    data: bytes
    began: float
    ended: float


async def _read(request: "aiohttp.client._RequestContextManager") -> _Reading:
    async with request as answer:
        answer.raise_for_status()
        parts, began = [], 0.0
        async for chunk in answer.content.iter_any():
            parts.append(chunk)
            if not began and b"event: custom" in chunk:
                began = time.perf_counter()
        return _Reading(b"".join(parts), began, time.perf_counter())


def _rate(reads: list[_Reading], cpu: float) -> Rate:
    events = sum(read.data.count(FRAME_END) - read.data.count(b": heartbeat") for read in reads)
    if events < READERS * EVENTS:
        raise RuntimeError(f"{events} of {READERS * EVENTS} events came")
    seconds = max(read.ended for read in reads) - min(read.began for read in reads)
    return Rate(events / seconds, cpu / events * 1e6, reads[0].data)


@asynccontextmanager
async def _uvicorn(sample: bytes) -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile() as file:
        file.write(sample)
        file.flush()
        command = (sys.executable, "-m", "hack.bench.raw_server", file.name, str(port))
        process = await asyncio.create_subprocess_exec(*command)
        try:
            await _listening(port)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()
            await process.wait()


async def _listening(port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.close()
            return
