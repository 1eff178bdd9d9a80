"""/healthz, /readyz and /metrics: healthy while work goes on, ready once every kind was listed. In the operator's own
loop, so a loop that stands still doesn't answer at all.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runyard_operator.metrics import CONTENT_TYPE

STUCK_SECONDS = 60.0
"""Work that is due and older than this means that nothing is being worked."""
LAG_SECONDS = 5.0
"""A loop that comes so late to a timer is blocked by something."""
TICK_SECONDS = 0.5
READ_SECONDS = 5.0


@dataclass
class Health:
    """What the probes look at: ages of the queues in seconds, numbers of changes that watches missed."""

    queue_ages: Callable[[], Iterable[tuple[str, float]]]
    late: Callable[[], Iterable[tuple[str, int]]]
    lag: float = 0.0
    started: bool = False

    def problems(self) -> list[str]:
        """What stands still, one line each; empty when healthy."""
        lines = [f"queue {name}: work waits for {age:.0f} s" for name, age in self.queue_ages() if age > STUCK_SECONDS]
        lines += [f"watch of {kind}: missed {count} changes" for kind, count in self.late() if count]
        return lines + ([f"event loop: {self.lag:.1f} s late"] if self.lag > LAG_SECONDS else [])

    async def measure_lag(self) -> None:
        """Keeps `lag` current, forever."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(TICK_SECONDS)
            self.lag = loop.time() - before - TICK_SECONDS


async def serve(
    health: Health, port: int, host: str = "0.0.0.0", *, metrics: Callable[[], bytes] = bytes
) -> asyncio.Server:
    """Answers /healthz, /readyz and /metrics (what `metrics` gives) on `port` until the server is closed; everything
    else is 404."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                path = request.split(b" ", 2)[1].decode("latin-1")
                writer.write(_answer(CONTENT_TYPE, metrics()) if path == "/metrics" else _response(health, path))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            return
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port)


def _response(health: Health, path: str) -> bytes:
    problems = health.problems()
    if path == "/readyz" and not health.started:
        problems.append("start: not every kind is listed yet")
    if path not in ("/healthz", "/readyz"):
        status, body = "404 Not Found", "only /healthz, /readyz and /metrics are here\n"
    elif problems:
        status, body = "503 Service Unavailable", "\n".join(problems) + "\n"
    else:
        status, body = "200 OK", "ok\n"
    return _answer("text/plain", body.encode(), status)


def _answer(content_type: str, body: bytes, status: str = "200 OK") -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((*lines, "", "")).encode() + body
