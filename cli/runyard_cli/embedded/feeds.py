"""The latest status of each unfinished run, for those who wait for changes. Called by `dispatcher`; no I/O."""

import asyncio
from collections.abc import AsyncGenerator

from runyard_gateway.ports import RunStatus


class Feed:
    """One run's latest status. Watchers see the newest, not each; a None ends them: the run has vanished."""

    def __init__(self, status: RunStatus | None) -> None:
        self._status = status
        self._changed = asyncio.Event()

    def publish(self, status: RunStatus | None) -> None:
        self._status = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self) -> AsyncGenerator[RunStatus, None]:
        """The present status, then each newer one; ends after a finished one or when the run has vanished."""
        while (status := self._status) is not None:
            changed = self._changed
            yield status
            if status.state.finished:
                return
            if self._status is status:
                await changed.wait()


class Feeds:
    """The feeds by run id. A finished run's feed is dropped: those who watch it hold it themselves."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def open(self, run_id: str, status: RunStatus) -> Feed:
        """The run's feed, made with `status` if it has none."""
        return self._feeds.setdefault(run_id, Feed(status))

    def publish(self, run_id: str, status: RunStatus | None) -> None:
        """Tells all who watch; None when the run has vanished."""
        ended = status is None or status.state.finished
        feed = self._feeds.pop(run_id, None) if ended else self._feeds.get(run_id)
        if feed:
            feed.publish(status)
