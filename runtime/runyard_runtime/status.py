"""The status stream: a snapshot, then every change of a run, and a beat each second. Read by the operator's leader.

`registry.py` publishes; the status route reads. Belongs to the server loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

from runyard_api.internal import RunHeld, StatusMessage

BEAT_SECONDS = 1.0
Snapshot = Callable[[], StatusMessage]


class StatusHub:
    """Readers of the status stream and what each has yet to hear. A reader that is slow hears a run's latest only."""

    def __init__(self, snapshot: Snapshot, figures: Snapshot) -> None:
        """`snapshot` gives everything held now; `figures` the same without runs, for changes and beats."""
        self._snapshot, self._figures = snapshot, figures
        self._readers: list[_Reader] = []
        self._closed = False

    def publish(self, run: RunHeld) -> None:
        """Tells every reader about a run."""
        for reader in self._readers:
            reader.tell(run)

    def nudge(self) -> None:
        """Makes every reader hear a beat now: a figure changed, no run did."""
        for reader in self._readers:
            reader.wake.set()

    def close(self) -> None:
        """Ends every stream: the process stops."""
        self._closed = True
        self.nudge()

    async def messages(self) -> AsyncGenerator[StatusMessage, None]:
        """Messages for one reader; runs that changed together are in one."""
        reader = _Reader()
        self._readers.append(reader)
        try:
            yield self._snapshot()
            while not self._closed:
                await reader.woken(BEAT_SECONDS)
                runs = reader.take()
                kind = "run" if runs else "beat"
                yield self._figures().model_copy(update={"kind": kind, "runs": runs, "versions": {}})
        finally:
            self._readers.remove(reader)


class _Reader:
    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._runs: dict[str, RunHeld] = {}

    def tell(self, run: RunHeld) -> None:
        self._runs[run.run_id] = run
        self.wake.set()

    def take(self) -> tuple[RunHeld, ...]:
        self.wake.clear()
        runs, self._runs = tuple(self._runs.values()), {}
        return runs

    async def woken(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            return
