"""Load on a gateway over plain HTTP: time to the first event of a stream, and runs per second. Used by __main__.py."""

import asyncio
import statistics
import time
from dataclasses import dataclass

import aiohttp

INPUTS = {"stub": {"log": []}, "tokens": {"messages": [{"role": "user", "content": "hi"}]}}
MODES = {"stub": ["values"], "tokens": ["messages-tuple", "updates", "values"]}


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the POST to the first event's bytes."""

    p50: float
    p95: float


class Gateway:
    """One client session against a gateway; at most `connections` at once."""

    def __init__(self, url: str, headers: dict[str, str], connections: int = 64) -> None:
        connector = aiohttp.TCPConnector(limit=connections)
        timeout = aiohttp.ClientTimeout(total=120)
        self._session = aiohttp.ClientSession(url, headers=headers, connector=connector, timeout=timeout)

    async def __aenter__(self) -> "Gateway":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def first_events(self, graph: str, runs: int) -> Latency:
        """Streams one run after the other, each on a thread of its own, and reads each to its end."""
        times = []
        for _ in range(runs):
            thread = await self._thread()
            start = time.perf_counter()
            async with self._stream(thread, graph) as answer:
                await answer.content.readuntil(b"\r\n\r\n")
                times.append((time.perf_counter() - start) * 1000)
                await _read_success(answer)
        cuts = statistics.quantiles(times, n=20, method="inclusive")
        return Latency(p50=cuts[9], p95=cuts[18])

    async def runs_per_second(self, graph: str, *, runs: int, concurrency: int) -> float:
        """Streams `runs` runs to their ends, `concurrency` at a time; making each one's thread is timed too."""
        places = asyncio.Semaphore(concurrency)

        async def one() -> None:
            async with places, self._stream(await self._thread(), graph) as answer:
                await _read_success(answer)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(runs)))
        return runs / (time.perf_counter() - start)

    async def _thread(self) -> str:
        async with self._session.post("/threads", json={}) as answer:
            answer.raise_for_status()
            thread: str = (await answer.json())["thread_id"]
            return thread

    def _stream(self, thread: str, graph: str) -> "aiohttp.client._RequestContextManager":
        body = {"assistant_id": graph, "input": INPUTS[graph], "stream_mode": MODES[graph]}
        return self._session.post(f"/threads/{thread}/runs/stream", json=body)


async def _read_success(answer: aiohttp.ClientResponse) -> None:
    answer.raise_for_status()
    rest = await answer.read()
    if b"event: end" not in rest or b"event: error" in rest:
        raise RuntimeError(f"a run didn't succeed: {rest[-300:]!r}")
