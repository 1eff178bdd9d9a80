"""Who watches which run: the Run informer's changes, handed to the requests that wait for them. No I/O.

A watcher that is slow sees the newest status, not every one in between.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from runyard_api.states import RunState
from runyard_gateway.cluster.views import ClusterRun
from runyard_gateway.ports import RunStatus


class Watcher:
    """One request's view of one run. `vanished`: its object was deleted."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._run: ClusterRun | None = None
        self._vanished = False

    def take(self, run: ClusterRun | None) -> None:
        self._run, self._vanished = run, run is None
        self._changed.set()

    async def statuses(self, status_of: Callable[[ClusterRun], RunStatus]) -> AsyncIterator[RunStatus]:
        """The present status, then each change, until the run has finished or vanished."""
        while True:
            self._changed.clear()
            run = self._run
            if self._vanished:
                return
            yield status_of(run) if run else RunStatus(RunState.PENDING)
            if run and run.state.finished:
                return
            await self._changed.wait()


class Watchers:
    """All watchers, by run id; a listener of the Run informer."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}
        self._known: dict[str, ClusterRun] = {}

    def on_change(self, old: ClusterRun | None, new: ClusterRun | None) -> None:
        """Takes a change of one object: old None = added, new None = deleted."""
        run = new or old
        if run is None:
            return
        if new is None:
            self._known.pop(run.run_id, None)
        else:
            self._known[run.run_id] = new
        for watcher in self._watchers.get(run.run_id, ()):
            watcher.take(new)

    def known(self, run_id: str) -> ClusterRun | None:
        """The run's object as last seen; None before it was, and after it was deleted."""
        return self._known.get(run_id)

    @contextlib.contextmanager
    def watching(self, run_id: str) -> Iterator[Watcher]:
        """A watcher that knows the present status and gets every change for as long as the block lasts."""
        watcher = Watcher()
        if known := self._known.get(run_id):
            watcher.take(known)
        self._watchers.setdefault(run_id, set()).add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]
