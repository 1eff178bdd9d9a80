"""A keyed work queue: each key is worked by one task at a time, again if it was added meanwhile, and later on request.

Feeds (`feed`, `links`, `sweep`) add keys; the handler (a reconcile) is called for each and says when it wants the key
again. Nothing is lost when a handler raises: the key comes back after a growing delay. Time is the event loop's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from runyard_api.retry import pause

BACKOFF = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
"""Seconds before the n-th retry of a key whose handler raised; the last one repeats."""

log = structlog.get_logger()


class Key(NamedTuple):
    """What a reconcile is about: an Agent by name, or a thread by its id."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


Worked = Callable[[float, bool], None]
"""Told after each call of a handler: its seconds, and whether it raised."""

Handler = Callable[[Key], Awaitable[float | None]]
"""Works one key; returns the seconds after which the key is due again, or None."""


@dataclass
class _Later:
    when: float
    timer: asyncio.TimerHandle


class WorkQueue:
    """Runs `handler` for added keys, at most `workers` at once and never twice at once for one key."""

    def __init__(
        self, name: str, handler: Handler, *, workers: int, worked: Worked = lambda seconds, failed: None
    ) -> None:
        self.name = name
        self._worked = worked
        self._handler = handler
        self._workers = workers
        self._ready: dict[Key, float] = {}
        self._running: dict[Key, tuple[float, asyncio.Task[None]]] = {}
        self._again: dict[Key, float] = {}
        self._later: dict[Key, _Later] = {}
        self._failures: dict[Key, int] = {}
        self._open = False

    def start(self) -> None:
        """Begins to work. Keys added before were dropped: who starts a queue adds all there are."""
        self._open = True

    async def stop(self, grace: float) -> None:
        """Takes no more work, waits up to `grace` seconds for running handlers, then cancels them."""
        self._open = False
        for later in self._later.values():
            later.timer.cancel()
        self._later.clear()
        self._ready.clear()
        tasks = [task for _, task in self._running.values()]
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=grace)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def add(self, key: Key) -> None:
        """Has the key worked as soon as possible: once more if it is being worked just now; never if it isn't open."""
        if not self._open:
            return
        now = asyncio.get_running_loop().time()
        if key in self._running:
            self._again.setdefault(key, now)
            return
        self._ready.setdefault(key, now)
        self._pump()

    def add_after(self, key: Key, seconds: float) -> None:
        """Has the key worked in `seconds`, or earlier if it was already due earlier; never if it isn't open."""
        if not self._open:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        known = self._later.get(key)
        if known is not None:
            if known.when <= when:
                return
            known.timer.cancel()
        self._later[key] = _Later(when, loop.call_at(when, self._due, key))

    def oldest_age(self) -> float:
        """Seconds since the oldest key that is due began to wait or to be worked; 0 when there is none."""
        now = asyncio.get_running_loop().time()
        since = [*self._ready.values(), *(began for began, _ in self._running.values())]
        return now - min(since, default=now)

    def __len__(self) -> int:
        return len(self._ready) + len(self._running)

    def _due(self, key: Key) -> None:
        self._later.pop(key, None)
        self.add(key)

    def _pump(self) -> None:
        while self._open and self._ready and len(self._running) < self._workers:
            key = next(iter(self._ready))
            del self._ready[key]
            self._forget_later(key)
            loop = asyncio.get_running_loop()
            self._running[key] = (loop.time(), loop.create_task(self._work(key), name=f"{self.name} {key}"))

    def _forget_later(self, key: Key) -> None:
        """A reconcile looks at everything and says anew when it wants to run again."""
        if (later := self._later.pop(key, None)) is not None:
            later.timer.cancel()

    async def _work(self, key: Key) -> None:
        failed = False
        try:
            after = await self._handler(key)
        except Exception:
            failed = True
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            after = pause(BACKOFF, failures)
            log.warning("reconcile failed", queue=self.name, key=str(key), retry_in=after, exc_info=True)
        else:
            self._failures.pop(key, None)
        finally:
            began, _ = self._running.pop(key)
            self._worked(asyncio.get_running_loop().time() - began, failed)
            if (since := self._again.pop(key, None)) is not None:
                self._ready.setdefault(key, since)
        if after is not None and self._open:
            self.add_after(key, after)
        self._pump()
