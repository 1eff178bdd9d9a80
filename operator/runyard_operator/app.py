"""Puts the operator together: opens what it talks to, makes the World, starts and stops everything. Called by kopf's
start-up and clean-up handlers (`feed.register`), because kopf cancels whatever else runs in its loop.
"""

import asyncio
from dataclasses import dataclass, field

import aiohttp
import structlog

from runyard_api.errors import Unavailable
from runyard_api.tokens import pod_token
from runyard_clients.runtime import RuntimeClient, pooled_http
from runyard_kube.client import KubeClient
from runyard_operator.agents.observe import AgentMemory
from runyard_operator.agents.reconcile import reconcile_agent
from runyard_operator.feed import Feed
from runyard_operator.links import Links
from runyard_operator.ports import Cluster, Rows, StoreRows
from runyard_operator.probes import Health, serve
from runyard_operator.runs.reconcile import reconcile_thread
from runyard_operator.seen import PodView
from runyard_operator.settings import Settings
from runyard_operator.sweep import Sweep
from runyard_operator.workqueue import Key, WorkQueue
from runyard_operator.world import World, utc_now
from runyard_store.database import Database, open_database
from runyard_store.migrate import require_schema

AGENT_WORKERS = 8
STOP_GRACE_SECONDS = 5.0
SCHEMA_RETRY_SECONDS = 2.0

log = structlog.get_logger()


@dataclass
class Operator:
    """One running operator. `start` and `stop` are called once each, on one loop."""

    settings: Settings
    _feed: Feed | None = None
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
        """Blocks until the database has its schema and every kind was listed, then begins to work.

        Raises Unauthorized, ValueError when the settings can't lead anywhere.
        """
        db = await open_database(self.settings.database_url)
        cluster = await KubeClient.open()
        self._closing += [db, cluster]
        self._http = pooled_http()
        world = build_world(self.settings, cluster, StoreRows(db), self._http)
        self._feed = Feed(world)
        sweep = Sweep(world, self._feed)
        health = Health(
            queue_ages=lambda: [(queue.name, queue.oldest_age()) for queue in (world.run_queue, world.agent_queue)],
            late=lambda: sweep.late.items(),
        )
        self._probes = await serve(health, self.settings.probe_port)
        await _wait_for_schema(db)
        await sweep.first()
        for queue in (world.agent_queue, world.run_queue):
            queue.start()
        self._tasks = [asyncio.create_task(sweep.forever()), asyncio.create_task(health.measure_lag())]
        health.started = True
        log.info("operator started", namespace=self.settings.agents_namespace, runs=len(world.caches.runs))

    async def stop(self) -> None:
        """Finishes what is being worked, within a few seconds, and closes everything."""
        for task in self._tasks:
            task.cancel()
        if self._feed is not None:
            world = self._feed.world
            await world.run_queue.stop(STOP_GRACE_SECONDS)
            await world.agent_queue.stop(STOP_GRACE_SECONDS)
            await world.links.stop()
        if self._probes is not None:
            self._probes.close()
        if self._http is not None:
            await self._http.close()
        for one in self._closing:
            await one.close()
        log.info("operator stopped")


def build_world(settings: Settings, cluster: Cluster, rows: Rows, http: aiohttp.ClientSession) -> World:
    """Everything the reconciles share, wired together; nothing runs yet."""
    agents: dict[Key, AgentMemory] = {}

    def connect(pod: PodView) -> RuntimeClient:
        token = pod_token(settings.token_key, namespace=pod.namespace, pod=pod.name, nonce=pod.nonce)
        return RuntimeClient(f"http://{pod.endpoint}", token=token, http=http)

    async def work_thread(key: Key) -> float | None:
        return await reconcile_thread(world, key)

    async def work_agent(key: Key) -> float | None:
        return await reconcile_agent(world, agents, key)

    run_queue = WorkQueue("runs", work_thread, workers=settings.workers)
    agent_queue = WorkQueue("agents", work_agent, workers=AGENT_WORKERS)
    links = Links(connect=connect, wake_thread=run_queue.add, wake_agent=agent_queue.add_after, now=utc_now)
    world = World(settings, cluster, rows, links, run_queue, agent_queue)
    return world


async def _wait_for_schema(db: Database) -> None:
    """The migration may still be on its way; nothing is worked before it is done."""
    while True:
        try:
            await require_schema(db)
            return
        except Unavailable as error:
            log.warning("waiting for the database", why=error.detail)
            await asyncio.sleep(SCHEMA_RETRY_SECONDS)
