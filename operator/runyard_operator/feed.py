"""What comes from the watches and lists: a trimmed object into the cache, a key on a queue, and nothing else.

`register` gives kopf its handlers; the sweep and the first lists call the same methods. kopf writes nothing: there are
only `on.event` handlers, so no finalizers, no annotations and no patches of its own.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import kopf
import structlog

from runyard_api.agent import Agent
from runyard_api.errors import Invalid
from runyard_api.names import GROUP, LABEL_AGENT, VERSION
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_operator.cache import version_of
from runyard_operator.seen import PodView, agent_of, pod_of, run_of
from runyard_operator.workqueue import Key
from runyard_operator.world import World, thread_of

log = structlog.get_logger()


class Feed:
    """Takes what was seen of each kind."""

    def __init__(self, world: World) -> None:
        self.world = world

    def run(self, raw: Mapping[str, Any], *, deleted: bool = False) -> None:
        """A Run was seen, or its deletion."""
        run = run_of(raw)
        if deleted:
            self.run_deleted(run)
        elif self.world.caches.runs.put(run):
            if self.world.leading and run.state is RunState.PENDING:
                memory = self.world.memory.of(run.run_id)
                memory.seen = memory.seen or self.world.now()
            self.world.run_queue.add(thread_of(run))

    def run_deleted(self, run: Run) -> None:
        """A Run is gone. If somebody else deleted it before it ended, that cancels it."""
        world, meta = self.world, run.metadata
        known = world.caches.runs.remove(meta.namespace, meta.name, meta.uid)
        last = known if known is not None and version_of(known) > version_of(run) else run
        if meta.uid in world.memory.own_deletions:
            world.memory.own_deletions.discard(meta.uid)
        elif not last.state.finished and world.leading:  # a leader to come finds it by its row (`sweep`)
            log.info("run deleted", run=run.run_id, thread=run.thread_id, state=last.state.value)
            world.memory.note_deleted(thread_of(run), last)
        world.run_queue.add(thread_of(run))

    def agent(self, raw: Mapping[str, Any], *, deleted: bool = False) -> None:
        """An Agent was seen, or its deletion; Runs that wait to learn its graphs are woken when those are known."""
        agent = agent_of(raw)
        key = Key(agent.metadata.namespace, agent.metadata.name)
        if deleted:
            self.agent_deleted(agent)
            return
        known = self.world.caches.agents.get(*key)
        if not self.world.caches.agents.put(agent):
            return
        self.world.agent_queue.add(key)
        if known is None or known.graph_ids != agent.graph_ids:
            for run in self.world.caches.runs.group("unadmitted", key.namespace, key.name):
                self.world.run_queue.add(thread_of(run))
            self._wake_agents(key.namespace)

    def agent_deleted(self, agent: Agent) -> None:
        meta = agent.metadata
        self.world.caches.agents.remove(meta.namespace, meta.name, meta.uid)
        key = Key(meta.namespace, meta.name)
        self.world.agent_queue.add(key)
        for run in self.world.caches.runs.group("agent", *key):
            if not run.state.finished:
                self.world.run_queue.add(thread_of(run))
        self._wake_agents(key.namespace)

    def _wake_agents(self, namespace: str) -> None:
        """Which graphs an Agent serves says who of the others may serve them."""
        for other in self.world.caches.agents:
            if other.metadata.namespace == namespace:
                self.world.agent_queue.add(Key(namespace, other.metadata.name))

    def pod(self, raw: Mapping[str, Any], *, deleted: bool = False) -> None:
        """An agent pod was seen, or its deletion; the threads of its runs are woken when it can't run them any more."""
        pod = pod_of(raw)
        if deleted:
            self.pod_deleted(pod)
        elif self.world.caches.pods.put(pod):
            self.world.agent_queue.add(Key(pod.namespace, pod.agent))
            if pod.ended:
                self.world.caches.ended_pods.note(pod)
                self._wake_runs_on(pod)

    def pod_deleted(self, pod: PodView) -> None:
        self.world.caches.pods.remove(pod.namespace, pod.name, pod.uid)
        if pod.ended:
            self.world.caches.ended_pods.note(pod)
        self.world.agent_queue.add(Key(pod.namespace, pod.agent))
        self._wake_runs_on(pod)

    def _wake_runs_on(self, pod: PodView) -> None:
        for run in self.world.caches.runs.group("pod", pod.namespace, pod.name):
            self.world.run_queue.add(thread_of(run))


Body = Callable[[], Awaitable[None]]


def register(registry: kopf.OperatorRegistry, feed: Callable[[], Feed], *, start: Body, stop: Body) -> None:
    """Adds our handlers to a registry of kopf. `start` blocks until every kind is served and listed once: with
    scanning off, kopf looks for resources a single time, right after it. `feed` is called once `start` is done."""

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=registry)
    async def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        await start()

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        await stop()

    @kopf.on.event(GROUP, VERSION, "runs", registry=registry)
    async def run_seen(event: kopf.RawEvent, **_: Any) -> None:
        _take(feed().run, event)

    @kopf.on.event(GROUP, VERSION, "agents", registry=registry)
    async def agent_seen(event: kopf.RawEvent, **_: Any) -> None:
        _take(feed().agent, event)

    @kopf.on.event("v1", "pods", registry=registry)
    async def pod_seen(event: kopf.RawEvent, **_: Any) -> None:
        _take(feed().pod, event)


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf only watches: it writes nothing, elects nobody, and looks for resources once."""
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = 500
    settings.watching.label_selectors["v1/pods"] = LABEL_AGENT
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = (1, 1, 2, 3, 5)
    settings.networking.enforce_retry_after = True
    settings.queueing.idle_timeout = 1
    settings.queueing.error_delays = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 60)
    settings.execution.max_workers = 4
    settings.persistence.diffbase_storage = NothingKept()
    settings.persistence.progress_storage = kopf.StatusProgressStorage()


class NothingKept(kopf.DiffBaseStorage):
    """The last seen state of an object, which kopf copies and compares for handlers of changes: we have none, and it
    costs a third of what kopf spends on an event."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        return None


def _take(take: Callable[..., None], event: kopf.RawEvent) -> None:
    """An object that can't be read is left out: it mustn't stop the others."""
    try:
        take(event["object"], deleted=event["type"] == "DELETED")
    except Invalid as error:
        log.warning("object left out", why=error.detail)
