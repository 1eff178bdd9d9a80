"""A cache of one kind kept current by list + watch, with callbacks on every change. It never polls.

Used by the gateway for Runs and Agents; calls KubeClient. Absence from the cache proves nothing: what a decision hangs
on is confirmed with a GET.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from runyard_api.crd import Manifest
from runyard_api.errors import Invalid as InvalidObject
from runyard_api.retry import pause
from runyard_kube.client import EVERYTHING, KubeClient, Selection, WatchEvent
from runyard_kube.errors import Gone, KubeError
from runyard_kube.resources import Resource

BACKOFF = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
"""Seconds to wait after the n-th failure in a row; the last one holds from then on. Retry-After may lengthen them."""
HEALTHY_SECONDS = 1.0
"""A watch that lived so long is no failure, however it ended: the next one begins at once."""

T = TypeVar("T")
Listener = Callable[[T | None, T | None], None]
"""Called with (old, new): old None = added, new None = deleted. Quick, and must not raise."""


@dataclass(frozen=True)
class Target:
    """What an informer follows. `idle_seconds` of silence mean that a watch is dead."""

    resource: Resource
    namespace: str
    selection: Selection = EVERYTHING
    idle_seconds: float = 70.0


class Informer(Generic[T]):
    """The objects of one collection, by name, as `parse` made them.

    `synced` is set once the first list is in the cache. `failures` counts those in a row; 0 while the watch works.
    """

    def __init__(
        self,
        client: KubeClient,
        target: Target,
        parse: Callable[[Manifest], T],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`parse` may raise runyard_api's Invalid: that object is logged and left out."""
        self.synced = asyncio.Event()
        self.failures = 0
        self._client, self._target, self._parse = client, target, parse
        self._sleep, self._clock = sleep, clock
        self._objects: dict[str, T] = {}
        self._listeners: list[Listener[T]] = []
        self._version: str | None = None
        self._heard_at = clock()
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("runyard_kube").bind(kind=target.resource.plural, namespace=target.namespace)

    @property
    def age(self) -> float:
        """Seconds since the API server was last heard of; bookmarks come about every minute."""
        return self._clock() - self._heard_at

    def get(self, name: str) -> T | None:
        return self._objects.get(name)

    def items(self) -> tuple[T, ...]:
        """All objects, in no order."""
        return tuple(self._objects.values())

    def subscribe(self, listener: Listener[T]) -> Callable[[], None]:
        """Calls `listener` on every change from now on, after the cache took it over; returns what ends that."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    def start(self) -> None:
        """Begins to list and watch in a task of its own; wait for `synced`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"informer {self._target.resource.plural}")

    async def stop(self) -> None:
        """Ends the watch at once; the cache stays as it is."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            delay = await self._turn()
            if delay > 0:
                await self._sleep(delay)

    async def _turn(self) -> float:
        """One list if one is due, then one watch to its end. Returns the seconds to wait before the next turn."""
        began: float | None = None
        error: Exception | None = None
        try:
            if self._version is None:
                await self._replace()
            began = self._clock()
            await self._follow()
        except KubeError as caught:
            error = caught
            if isinstance(caught, Gone):
                self._version = None
        except Exception as caught:
            # The top of a worker: a listener or parser that breaks must not end the watch for good. What was being
            # applied is in doubt, so the next turn lists again.
            self._log.exception("informer.broke")
            error, self._version = caught, None
        return self._delay_after(error, lived=began is not None and self._clock() - began >= HEALTHY_SECONDS)

    def _delay_after(self, error: Exception | None, *, lived: bool) -> float:
        """Counts the failure, unless the watch lived, and says how long to wait after it."""
        self.failures = 0 if lived else self.failures + 1
        if error is not None:
            self._log.info("informer.interrupted", error=str(error), failures=self.failures)
        asked = error.retry_after if isinstance(error, KubeError) and error.retry_after else 0.0
        first_gone = isinstance(error, Gone) and self.failures == 1
        if lived or first_gone:
            return asked
        return max(asked, pause(BACKOFF, self.failures))

    async def _replace(self) -> None:
        """Lists everything and makes the cache equal to it; what was deleted unseen is reported as deleted."""
        listing = await self._client.list(
            self._target.resource, self._target.namespace, selection=self._target.selection
        )
        before = self._objects
        parsed = ((_name(manifest), self._parsed(manifest)) for manifest in listing.items)
        self._objects = {name: value for name, value in parsed if value is not None}
        self._version = listing.resource_version
        for name in before.keys() | self._objects.keys():
            self._notify(before.get(name), self._objects.get(name))
        self._heard_at = self._clock()
        self.synced.set()

    async def _follow(self) -> None:
        assert self._version is not None
        watch = self._client.watch(
            self._target.resource,
            self._target.namespace,
            resource_version=self._version,
            selection=self._target.selection,
            idle_seconds=self._target.idle_seconds,
        )
        async with aclosing(watch) as events:
            async for event in events:
                self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        """Takes over one event. An object that a selection no longer covers comes as DELETED, as the API defines it."""
        self.failures, self._heard_at = 0, self._clock()
        self._version = event.object["metadata"]["resourceVersion"]
        if event.type == "BOOKMARK":
            return
        name = _name(event.object)
        old = self._objects.pop(name, None)
        new = None if event.type == "DELETED" else self._parsed(event.object)
        if new is not None:
            self._objects[name] = new
        self._notify(old, new)

    def _notify(self, old: T | None, new: T | None) -> None:
        if old == new:
            return
        for listener in tuple(self._listeners):
            listener(old, new)

    def _parsed(self, manifest: Manifest) -> T | None:
        try:
            return self._parse(manifest)
        except InvalidObject as error:
            self._log.warning("informer.unreadable", error=error.detail)
            return None


def _name(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name
