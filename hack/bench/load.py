"""Load on a server over plain HTTP: time to the first event of a stream, runs per second, readers of one run.

The same for Runyard's gateway and for `langgraph dev`, which speaks the same protocol. Used by all that measures.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

INPUTS = {"stub": {"log": []}, "tokens": {"messages": [{"role": "user", "content": "hi"}]}}
MODES = {"stub": ["values"], "tokens": ["messages-tuple", "updates", "values"]}
FRAME_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Latency:
    """Milliseconds from the POST to the first event's bytes."""

    p50: float
    p95: float


class Client:
    """One client session against a server; at most `connections` at once (0: any number).

    `last`: what the last bytes of a run that succeeded hold.
    """

    def __init__(
        self, url: str, headers: dict[str, str], *, connections: int = 64, last: bytes = b"event: end"
    ) -> None:
        connector = aiohttp.TCPConnector(limit=connections)
        timeout = aiohttp.ClientTimeout(total=120)
        self._session = aiohttp.ClientSession(url, headers=headers, connector=connector, timeout=timeout)
        self._last = last

    async def __aenter__(self) -> "Client":
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
                await answer.content.readuntil(FRAME_END)
                times.append((time.perf_counter() - start) * 1000)
                await self._read_success(answer)
        cuts = statistics.quantiles(times, n=20, method="inclusive")
        return Latency(p50=cuts[9], p95=cuts[18])

    async def runs_per_second(self, graph: str, *, runs: int, concurrency: int) -> float:
        """Streams `runs` runs to their ends, `concurrency` at a time; making each one's thread is timed too."""
        places = asyncio.Semaphore(concurrency)

        async def one() -> None:
            async with places, self._stream(await self._thread(), graph) as answer:
                await self._read_success(answer)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(runs)))
        return runs / (time.perf_counter() - start)

    async def begin(self, graph: str, given: dict[str, Any], *, modes: Sequence[str] = ("custom",)) -> tuple[str, str]:
        """Starts a run in the background; returns its thread and run."""
        thread = await self._thread()
        body = {"assistant_id": graph, "input": given, "stream_mode": list(modes)}
        async with self._session.post(f"/threads/{thread}/runs", json=body) as answer:
            answer.raise_for_status()
            return thread, (await answer.json())["run_id"]

    def join(self, thread: str, run: str) -> "aiohttp.client._RequestContextManager":
        """The run's stream from its first event on."""
        path = f"/threads/{thread}/runs/{run}/stream"
        return self._session.get(path, headers={"last-event-id": "-1"}, timeout=aiohttp.ClientTimeout(total=None))

    async def cancel(self, thread: str, run: str) -> None:
        """Ends a run and waits for its end."""
        async with self._session.post(f"/threads/{thread}/runs/{run}/cancel", params={"wait": "true"}) as answer:
            await answer.read()

    async def _thread(self) -> str:
        async with self._session.post("/threads", json={}) as answer:
            answer.raise_for_status()
            thread: str = (await answer.json())["thread_id"]
            return thread

    def _stream(self, thread: str, graph: str) -> "aiohttp.client._RequestContextManager":
        body = {"assistant_id": graph, "input": INPUTS[graph], "stream_mode": MODES[graph]}
        return self._session.post(f"/threads/{thread}/runs/stream", json=body)

    async def _read_success(self, answer: aiohttp.ClientResponse) -> None:
        answer.raise_for_status()
        rest = await answer.read()
        if self._last not in rest or b"event: error" in rest:
            raise RuntimeError(f"a run didn't succeed: {rest[-300:]!r}")
