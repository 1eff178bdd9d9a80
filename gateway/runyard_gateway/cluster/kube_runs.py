"""Runs in a cluster: each is a Run object that the operator executes; its status tells the pod to read from.

Implements ports.Runs on KubeClient and two informers; nothing polls but the sweep, which does what a gateway that died
between the row and the object left undone.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp
import structlog

from runyard_api.crd import Manifest
from runyard_api.errors import NotFound, Unavailable
from runyard_api.run import cancel_patch, run_object
from runyard_api.states import CancelAction, RunState
from runyard_api.tokens import pod_token
from runyard_clients.runtime import RuntimeClient
from runyard_gateway.cluster.views import ClusterAgent, ClusterRun, PodAddress, by_age, cluster_agent, cluster_run
from runyard_gateway.cluster.wake import Waker
from runyard_gateway.cluster.watchers import Watchers
from runyard_gateway.periodic import repeat
from runyard_gateway.ports import AgentEndpoint, AgentView, RunStatus
from runyard_kube import errors as kube_errors
from runyard_kube.client import KubeClient
from runyard_kube.informer import Informer, Target
from runyard_kube.resources import AGENTS, RUNS
from runyard_store.database import Database
from runyard_store.deletion import RemovedRun
from runyard_store.runs import RunRow, cancelled_runs, finish_unheld, note_object, runs_without_object

log = structlog.get_logger(__name__)
SWEEP_SECONDS, ORPHANED_AFTER = 5.0, timedelta(seconds=10)
ENDPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Cluster:
    """What KubeRuns is given: the Agents' namespace, the key of pod tokens, and open clients that it won't close."""

    kube: KubeClient
    http: aiohttp.ClientSession
    db: Database
    namespace: str
    token_key: bytes
    now: Callable[[], datetime]


class KubeRuns:
    """Runs between `start` and `stop`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._runs: Informer[ClusterRun] = Informer(cluster.kube, Target(RUNS, cluster.namespace), cluster_run)
        self._agents: Informer[ClusterAgent] = Informer(cluster.kube, Target(AGENTS, cluster.namespace), cluster_agent)
        self._watchers = Watchers()
        self._waker = Waker(cluster.kube, cluster.namespace, cluster.now)
        self._runs.subscribe(self._watchers.on_change)
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to follow the cluster; until the Agents are known, calls that need them raise Unavailable."""
        self._runs.start()
        self._agents.start()
        self._sweeper = asyncio.create_task(repeat(self.sweep, seconds=SWEEP_SECONDS, what="sweep of runs"))

    async def stop(self) -> None:
        if self._sweeper:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        await self._runs.stop()
        await self._agents.stop()

    def watch_ages(self) -> dict[str, float]:
        """Of the two informers."""
        return {"runs": self._runs.age, "agents": self._agents.age}

    async def submit(self, run: RunRow) -> None:
        """Creates the Run object, or finds that it is there, and keeps its uid in the row. Raises Unavailable."""
        cluster = self._cluster
        try:
            made = await cluster.kube.create(RUNS, cluster.namespace, manifest_of(run, cluster.namespace))
        except kube_errors.AlreadyExists:
            made = await cluster.kube.get(RUNS, cluster.namespace, run.run_id)
        except kube_errors.Invalid as error:
            log.error("the API server refused a Run", run=run.run_id, thread=run.thread_id, reason=error.message)
            failure = {"error": "Refused", "message": "The cluster refused the Run object of this run."}
            await finish_unheld(cluster.db, run.run_id, RunState.ERROR, failure, cluster.now())
            return
        await note_object(cluster.db, run.run_id, made["metadata"]["uid"], cluster.now())

    async def cancel(self, run: RunRow, action: CancelAction, reason: str) -> None:
        """Asks by the object; one that is still to be made is made with the cancel in it. Raises Unavailable."""
        if await self._patch_cancel(run, action, reason) or run.object_uid is not None:
            return
        await self.submit(run)
        await self._patch_cancel(run, action, reason)

    async def remove(self, run: RemovedRun) -> None:
        """Deletes the object; to the operator that is a cancel. Raises Unavailable."""
        seen = self._watchers.known(run.run_id)
        if seen is None and not run.unfinished:
            return
        name = seen.name if seen else run.run_id
        # A hand-written Run's id is its uid; its name may be another object's by now.
        uid = None if name == run.run_id else run.run_id
        with contextlib.suppress(kube_errors.NotFound, kube_errors.Conflict):
            await self._cluster.kube.delete(RUNS, self._cluster.namespace, name, uid=uid)

    async def _patch_cancel(self, run: RunRow, action: CancelAction, reason: str) -> bool:
        """False when there is no such object."""
        seen = self._watchers.known(run.run_id)
        name = seen.name if seen else run.run_id
        try:
            await self._cluster.kube.patch(RUNS, self._cluster.namespace, name, cancel_patch(action, reason))
        except kube_errors.NotFound:
            return False
        except kube_errors.Invalid as error:
            # A stronger cancel is there already; the row was read before it was.
            log.info("the API server refused a cancel", run=run.run_id, thread=run.thread_id, reason=error.message)
        return True

    @contextlib.asynccontextmanager
    async def watch(self, run_id: str) -> AsyncIterator[AsyncIterator[RunStatus]]:
        with self._watchers.watching(run_id) as watcher:
            yield watcher.statuses(self._status_of)

    def agents(self) -> Sequence[AgentView]:
        """All agents, oldest first. Raises Unavailable before they are known: an unknown agent is no missing one."""
        if not self._agents.synced.is_set():
            raise Unavailable("The agents of the cluster are not known yet; try again.")
        return by_age(self._agents.items())

    async def endpoint(self, agent_name: str) -> AgentEndpoint:
        """A pod of the agent, any of those that take runs, else one that still answers; wakes the agent and waits if
        there is none."""
        changed = asyncio.Event()
        unsubscribe = self._agents.subscribe(lambda _old, _new: changed.set())
        try:
            async with asyncio.timeout(ENDPOINT_SECONDS):
                while True:
                    agent = self._agents.get(agent_name)
                    if agent is None:
                        await self._confirm_agent(agent_name)
                    elif pods := agent.pods or agent.leaving:
                        return self._client_of(random.choice(pods))
                    else:
                        await self._waker.wake(agent_name)
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise Unavailable(self._no_pod(agent_name)) from None
        finally:
            unsubscribe()

    def _no_pod(self, agent_name: str) -> str:
        """Why there is none, as far as the Agent knows."""
        agent = self._agents.get(agent_name)
        why = f": {agent.view.reason}" if agent and agent.view.reason else "; one is being started"
        return f"Agent {agent_name} has no pod up{why}"

    async def _confirm_agent(self, agent_name: str) -> None:
        """Raises NotFound unless the API server knows the agent: the cache may be behind."""
        try:
            await self._cluster.kube.get(AGENTS, self._cluster.namespace, agent_name)
        except kube_errors.NotFound as error:
            raise NotFound(f"Agent {agent_name} not found.") from error

    def _status_of(self, run: ClusterRun) -> RunStatus:
        return RunStatus(run.state, run.attempt, self._client_of(run.pod) if run.pod else None, run.error)

    def _client_of(self, pod: PodAddress) -> RuntimeClient:
        cluster = self._cluster
        token = pod_token(cluster.token_key, namespace=cluster.namespace, pod=pod.pod, nonce=pod.nonce)
        return RuntimeClient(f"http://{pod.endpoint}", token=token, http=cluster.http)

    async def sweep(self) -> None:
        """Makes the objects of runs that have waited for one too long, and cancels those whose rows ask for it while
        their objects don't, whichever gateway wrote the rows. Raises Unavailable."""
        for run in await runs_without_object(self._cluster.db, self._cluster.now() - ORPHANED_AFTER):
            await self.submit(run)
        for run in await cancelled_runs(self._cluster.db):
            seen = self._watchers.known(run.run_id)
            if run.cancel_action and seen and seen.lacks(run.cancel_action):
                await self._patch_cancel(run, run.cancel_action, run.cancel_reason or "")


def manifest_of(run: RunRow, namespace: str) -> Manifest:
    """The Run object of a stored run, with the cancel that its row asks for."""
    payload = run.payload
    manifest = run_object(
        run_id=run.run_id,
        namespace=namespace,
        agent_name=run.agent_name,
        graph_id=run.graph_id,
        assistant_id=run.assistant_id,
        thread_id=run.thread_id,
        user_id=run.user_id,
        sequence=run.sequence,
        strategy=run.multitask_strategy,
        on_disconnect=run.on_disconnect,
        durability=payload["durability"],
        stream_mode=payload["stream_mode"],
        not_before=_whole_seconds(run.not_before),
    )
    if run.cancel_action:
        manifest["spec"] |= cancel_patch(run.cancel_action, run.cancel_reason or "")["spec"]
    return manifest


def _whole_seconds(time: datetime | None) -> datetime | None:
    """Rounded up: Kubernetes' times have no fractions, and a run never starts too early."""
    return time and (time + timedelta(microseconds=999_999)).replace(microsecond=0)
