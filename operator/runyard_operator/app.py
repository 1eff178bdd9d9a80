"""Puts the operator together: opens what it talks to, makes the World, starts and stops everything. Called by kopf's
start-up and clean-up handlers (`feed.register`), because kopf cancels whatever else runs in its loop.
"""

import asyncio
import secrets
import signal
import time
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import structlog

from runyard_api.errors import Unavailable
from runyard_api.tokens import pod_token
from runyard_clients.runtime import RuntimeClient, pooled_http
from runyard_kube.client import KubeClient
from runyard_kube.lease import Leadership, Place
from runyard_operator.agents.observe import AgentMemory
from runyard_operator.agents.reconcile import reconcile_agent
from runyard_operator.feed import Feed
from runyard_operator.leading import LeadersCluster
from runyard_operator.links import Links
from runyard_operator.metrics import Metrics, Present
from runyard_operator.ports import Cluster, Rows, StoreRows
from runyard_operator.present import now_of
from runyard_operator.probes import Health, serve
from runyard_operator.runs.reconcile import reconcile_thread
from runyard_operator.seen import PodView
from runyard_operator.settings import Settings
from runyard_operator.sweep import Sweep
from runyard_operator.trim import trim_forever
from runyard_operator.workqueue import Handler, Key, WorkQueue
from runyard_operator.world import Caches, World, utc_now
from runyard_store.database import Database, open_database
from runyard_store.migrate import require_schema

AGENT_WORKERS = 8
STOP_GRACE_SECONDS = 1.0
"""For reconciles that are under way when the operator stops. The next leader waits for them, so one that is held up by
a pod that doesn't answer is cut: it is done again there."""
SCHEMA_RETRY_SECONDS = 2.0

log = structlog.get_logger()


@dataclass
class Operator:
    """One running operator. `start` and `stop` are called once each, on one loop."""

    settings: Settings
    _feed: Feed | None = None
    _sweep: Sweep | None = None
    _closing: list[KubeClient | Database] = field(default_factory=list)
    _http: aiohttp.ClientSession | None = None
    _probes: asyncio.Server | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def feed(self) -> Feed:
        """Where watches put what they see; there once `start` is done."""
        assert self._feed is not None
        return self._feed

    async def start(self) -> None:
        """Blocks until the database has its schema and every kind was listed; then waits, beside the watches, to lead.

        Raises Unauthorized, ValueError when the settings can't lead anywhere.
        """
        db = await open_database(self.settings.database_url)
        metrics = Metrics()
        cluster = await KubeClient.open(observe=lambda verb, code: self._requested(metrics, verb, code))
        self._closing += [db, cluster]
        self._http = pooled_http()
        build = partial(
            build_world, self.settings, rows=StoreRows(db), http=self._http, caches=Caches(), metrics=metrics
        )
        feed = self._feed = Feed(build(cluster, term=0))
        sweep = self._sweep = Sweep(feed)
        health = Health(queue_ages=lambda: [(q.name, q.oldest_age()) for q in feed.world.queues], late=sweep.late.items)
        metrics.registry.register(Present(lambda: now_of(feed.world, health.lag)))
        self._probes = await serve(health, self.settings.probe_port, metrics=metrics.text)
        await _wait_for_schema(db)
        await sweep.first()
        beside = (sweep.forever(), health.measure_lag(), trim_forever(lambda: feed.world))
        self._tasks = [asyncio.create_task(work) for work in beside]
        leadership = Leadership(cluster, self._place(), clock=time.monotonic, now=utc_now)
        leaders = LeadersCluster(cluster, leadership)

        async def serve_term(term: int) -> None:
            feed.world = build(leaders, term=term)
            feed.world.begin()
            sweep.hasten()
            try:
                await asyncio.Event().wait()
            finally:
                await feed.world.end(STOP_GRACE_SECONDS if leadership.certain else 0.0)

        leading = asyncio.create_task(leadership.lead(serve_term))
        leading.add_done_callback(_end_with)
        self._tasks.append(leading)
        health.started = True
        log.info("operator started", namespace=self.settings.agents_namespace, runs=len(feed.world.caches.runs))

    async def stop(self) -> None:
        """Finishes what is being worked, within a few seconds, and closes everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._probes is not None:
            self._probes.close()
        if self._http is not None:
            await self._http.close()
        for one in self._closing:
            await one.close()
        log.info("operator stopped")

    def _requested(self, metrics: Metrics, verb: str, code: int) -> None:
        metrics.requested(verb, code)
        if self._sweep is not None:
            self._sweep.requested(code)

    def _place(self) -> Place:
        """Our name for the lease is of this process alone: a container that comes back in its pod is another one."""
        identity = f"{self.settings.instance}_{secrets.token_hex(4)}"
        return Place(self.settings.agents_namespace, self.settings.lease_name, identity)


def build_world(
    settings: Settings,
    cluster: Cluster,
    *,
    rows: Rows,
    http: aiohttp.ClientSession,
    caches: Caches,
    metrics: Metrics,
    term: int,
) -> World:
    """Everything the reconciles of one term share, wired together; nothing runs yet."""
    agents: dict[Key, AgentMemory] = {}

    def connect(pod: PodView) -> RuntimeClient:
        token = pod_token(settings.token_key, namespace=pod.namespace, pod=pod.name, nonce=pod.nonce)
        return RuntimeClient(f"http://{pod.endpoint}", token=token, http=http, term=term)

    async def work_thread(key: Key) -> float | None:
        return await reconcile_thread(world, key)

    async def work_agent(key: Key) -> float | None:
        return await reconcile_agent(world, agents, key)

    def queue(name: str, handler: Handler, workers: int) -> WorkQueue:
        return WorkQueue(name, handler, workers=workers, worked=partial(metrics.reconciled, name))

    run_queue = queue("runs", work_thread, settings.workers)
    agent_queue = queue("agents", work_agent, AGENT_WORKERS)
    links = Links(connect=connect, wake_thread=run_queue.add, wake_agent=agent_queue.add_after, now=utc_now)
    world = World(settings, cluster, rows, links, run_queue, agent_queue, caches=caches, metrics=metrics)
    return world


def _end_with(leading: asyncio.Task[None]) -> None:
    """An operator that can't try to lead any more is of no use: it ends, and its pod brings another one."""
    if not leading.cancelled() and (error := leading.exception()) is not None:
        log.error("operator ends: leading failed", exc_info=error)
        signal.raise_signal(signal.SIGTERM)


async def _wait_for_schema(db: Database) -> None:
    """The migration may still be on its way; nothing is worked before it is done."""
    while True:
        try:
            await require_schema(db)
            return
        except Unavailable as error:
            log.warning("waiting for the database", why=error.detail)
            await asyncio.sleep(SCHEMA_RETRY_SECONDS)
