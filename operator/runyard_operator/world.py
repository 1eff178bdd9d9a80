"""Everything the reconciles share, passed to each: caches, links to pods, ports to the outside, settings, the clock.

Made once by `app`; a test makes its own with fakes behind the ports.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from runyard_api.agent import Agent
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_kube import errors as kube
from runyard_kube.resources import AGENTS, PODS
from runyard_operator.cache import Cache
from runyard_operator.links import Links
from runyard_operator.metrics import Metrics
from runyard_operator.ports import Cluster, Rows
from runyard_operator.runs.memory import Memory
from runyard_operator.seen import EndedPods, PodView, agent_of, pod_of
from runyard_operator.settings import Settings
from runyard_operator.workqueue import Key, WorkQueue


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Caches:
    """What was last seen of each kind. Runs are grouped by thread, by Agent, by pod while one runs them, by Agent while
    they aren't admitted, and all that have ended."""

    runs: Cache[Run] = field(
        default_factory=lambda: Cache(
            {
                "thread": lambda run: run.thread_id,
                "agent": lambda run: run.spec.agent_name,
                "pod": lambda run: run.status.pod_name if run.state is RunState.RUNNING else None,
                "unadmitted": lambda run: run.spec.agent_name if awaits_admission(run) else None,
                "finished": lambda run: "" if run.state.finished else None,
            }
        )
    )
    agents: Cache[Agent] = field(default_factory=Cache)
    pods: Cache[PodView] = field(default_factory=lambda: Cache({"agent": lambda pod: pod.agent}))
    ended_pods: EndedPods = field(default_factory=EndedPods)


@dataclass
class World:
    """`run_queue` has thread keys, `agent_queue` Agent keys. `leading`: this operator works, rather than only looks.
    `inherited`: uids of pods that ran before its term. `nonce` makes what a pod's token is derived with.

    All but caches and metrics is of one term of leading: what was remembered of an earlier one may be wrong by now.
    """

    settings: Settings
    cluster: Cluster
    rows: Rows
    links: Links
    run_queue: WorkQueue
    agent_queue: WorkQueue
    caches: Caches = field(default_factory=Caches)
    memory: Memory = field(default_factory=Memory)
    metrics: Metrics = field(default_factory=Metrics)
    leading: bool = False
    inherited: set[str] = field(default_factory=set)
    now: Callable[[], datetime] = utc_now
    nonce: Callable[[], str] = lambda: secrets.token_hex(8)

    @property
    def queues(self) -> tuple[WorkQueue, WorkQueue]:
        return self.run_queue, self.agent_queue

    def begin(self) -> None:
        """Begins to work, with everything that was seen so far."""
        self.leading = True
        self.inherited = {pod.uid for pod in self.caches.pods if pod.reachable}
        for queue in self.queues:
            queue.start()
        for key in (*(Key(o.metadata.namespace, o.metadata.name) for o in self.caches.agents), *self._owners()):
            self.agent_queue.add(key)
        for run in self.caches.runs:
            self.run_queue.add(thread_of(run))

    async def end(self, grace: float) -> None:
        """Stops working: what runs has `grace` seconds to come to its end."""
        self.leading = False
        await asyncio.gather(*(queue.stop(grace) for queue in self.queues))
        await self.links.stop()

    def _owners(self) -> Iterable[Key]:
        """The Agents that pods belong to, also those that are gone."""
        return (Key(pod.namespace, pod.agent) for pod in self.caches.pods)

    async def confirmed_pod(self, namespace: str, name: str) -> PodView | None:
        """The pod, by GET if it isn't cached: absence from the cache proves nothing. None: it doesn't exist."""
        known = self.caches.pods.get(namespace, name)
        if known is not None:
            return known
        try:
            pod = pod_of(await self.cluster.get(PODS, namespace, name))
        except kube.NotFound:
            return None
        self.caches.pods.put(pod)
        return pod

    async def confirmed_agent(self, namespace: str, name: str) -> Agent | None:
        """The Agent, by GET if it isn't cached. None: it doesn't exist."""
        known = self.caches.agents.get(namespace, name)
        if known is not None:
            return known
        try:
            agent = agent_of(await self.cluster.get(AGENTS, namespace, name))
        except kube.NotFound:
            return None
        self.caches.agents.put(agent)
        return agent


def awaits_admission(run: Run) -> bool:
    """A hand-written Run without a place yet."""
    return run.sequence is None and run.state is RunState.PENDING


def thread_of(run: Run) -> Key:
    """The queue key of a Run's thread."""
    return Key(run.metadata.namespace, run.thread_id)
