"""Lists of every kind beside the watches: the first ones at the start, then one each minute against what watches miss,
and at the beginning of each term.

kopf never tells of a deletion that happened while its watch was broken, so objects that a list doesn't have are taken
as deleted; objects that the watch hasn't told of for long are read and counted against it (`probes`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog

from runyard_api.errors import Invalid
from runyard_api.names import LABEL_AGENT
from runyard_api.states import RunState
from runyard_kube import errors as kube
from runyard_kube.client import EVERYTHING, Listing, Selection
from runyard_kube.resources import AGENTS, PODS, RUNS, Resource
from runyard_operator.cache import Cache, version_of
from runyard_operator.feed import Feed
from runyard_operator.workqueue import Key
from runyard_operator.world import World

EVERY_SECONDS = 60.0
RETRY_SECONDS = 2.0
"""Between two rounds at least: calls that fail have the next one come at once."""
SILENT_SECONDS = 30.0
"""How long a watch may take to tell of what a list shows: one that broke comes back within seconds."""
YOUNG = timedelta(seconds=30)
"""Rows this young may have an object that a list taken before doesn't show."""
CANCELLED_AT_ONCE = 500
"""Rows without their object that one round looks at."""

log = structlog.get_logger()


@dataclass(frozen=True)
class _Kind:
    resource: Resource
    cache: Cache[Any]
    take: Callable[[Mapping[str, Any]], None]
    drop: Callable[[Any], None]
    selection: Selection = EVERYTHING


@dataclass
class Sweep:
    """`late`: how many objects the last round had to fetch because the watch of their kind hadn't told of them.
    `_suspects`: uid and version of those it hasn't told of yet, and since when, by kind."""

    feed: Feed
    late: dict[str, int] = field(default_factory=dict)
    _suspects: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    _hastened: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def world(self) -> World:
        """The world of the present term."""
        return self.feed.world

    async def first(self) -> None:
        """Lists every kind until each could be listed: a kind that isn't served yet is waited for."""
        for kind in self._kinds():
            for raw in (await self._listed(kind)).items:
                self._take(kind, raw)

    async def forever(self) -> None:
        """A round each minute, or as soon as `hasten` was called; one that fails is soon tried again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._hastened.wait()
            self._hastened.clear()
            failed = True
            try:
                await self.round()
                failed = False
            except Exception:
                log.warning("sweep failed", exc_info=True)
            self.world.metrics.swept(failed=failed)
            await asyncio.sleep(RETRY_SECONDS)
            if failed:
                self.hasten()

    def hasten(self) -> None:
        """Has the next round come now."""
        self._hastened.set()

    def requested(self, code: int) -> None:
        """Told of each call of the API server: after one without an answer the watches may have missed something."""
        if code == 0:
            self.hasten()

    async def round(self) -> None:
        """Compares every kind with a list; a leader also looks for rows without an object.

        Raises KubeError, Unavailable.
        """
        for kind in self._kinds():
            listing = await self.world.cluster.list(
                kind.resource, self.world.settings.agents_namespace, selection=kind.selection, metadata_only=True
            )
            await self._compare(kind, listing)
            if kind.resource is RUNS and self.world.leading:
                await self._cancel_deleted({raw["metadata"]["uid"] for raw in listing.items})

    async def _compare(self, kind: _Kind, listing: Listing) -> None:
        versions = {raw["metadata"]["uid"]: raw["metadata"] for raw in listing.items}
        for ghost in kind.cache.absent_from(versions, int(listing.resource_version)):
            log.info("deletion missed by the watch", kind=kind.resource.plural, name=ghost.metadata.name)
            self.world.metrics.missed(kind.resource.plural, "deletion")
            kind.drop(ghost)
        before, now = self._suspects.get(kind.resource.plural, {}), asyncio.get_running_loop().time()
        behind = [(uid, meta["resourceVersion"]) for uid, meta in versions.items() if self._behind(kind, meta)]
        since = self._suspects[kind.resource.plural] = {one: before.get(one, now) for one in behind}
        late = [versions[uid] for (uid, _), first in since.items() if now - first >= SILENT_SECONDS]
        self.late[kind.resource.plural] = len(late)
        for meta in late:
            log.warning("change missed by the watch", kind=kind.resource.plural, name=meta["name"])
            self.world.metrics.missed(kind.resource.plural, "update")
            await self._fetch(kind, meta["name"])

    def _behind(self, kind: _Kind, meta: Mapping[str, Any]) -> bool:
        known = kind.cache.get(meta["namespace"], meta["name"])
        return known is None or version_of(known) < int(meta["resourceVersion"])

    async def _fetch(self, kind: _Kind, name: str) -> None:
        try:
            self._take(kind, await self.world.cluster.get(kind.resource, self.world.settings.agents_namespace, name))
        except kube.NotFound:
            log.debug("gone meanwhile", name=name)

    async def _cancel_deleted(self, uids: set[str]) -> None:
        """A row that had an object and has none any more was cancelled by its deletion, which nobody told us of."""
        rows = await self.world.rows.with_object(self.world.now() - YOUNG)
        for row in [row for row in rows if row.object_uid not in uids][:CANCELLED_AT_ONCE]:
            thread = Key(self.world.settings.agents_namespace, row.thread_id)
            if row.run_id in self.world.memory.deleted.get(thread, {}):
                continue
            if not self.world.links.holding(thread):
                log.info("run without its object cancelled", run=row.run_id, thread=row.thread_id)
                await self.world.rows.finish_unheld(row.run_id, RunState.INTERRUPTED, None, self.world.now())
            self.world.run_queue.add(thread)

    async def _listed(self, kind: _Kind) -> Listing:
        while True:
            try:
                return await self.world.cluster.list(
                    kind.resource, self.world.settings.agents_namespace, selection=kind.selection
                )
            except kube.KubeError as error:
                log.warning("kind can't be listed yet", kind=kind.resource.plural, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _take(self, kind: _Kind, raw: Mapping[str, Any]) -> None:
        try:
            kind.take(raw)
        except Invalid as error:
            log.warning("object left out", why=error.detail)

    def _kinds(self) -> tuple[_Kind, ...]:
        caches, feed = self.world.caches, self.feed
        return (
            _Kind(PODS, caches.pods, feed.pod, feed.pod_deleted, Selection(labels=LABEL_AGENT)),
            _Kind(AGENTS, caches.agents, feed.agent, feed.agent_deleted),
            _Kind(RUNS, caches.runs, feed.run, feed.run_deleted),
        )
