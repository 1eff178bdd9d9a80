"""The reconcile of one Agent: follows its pods, makes, marks and deletes them, writes its status, lets a deleted one go
when nothing of it is left. Handles Agent keys."""

from collections.abc import Iterable
from datetime import timedelta

import structlog

from runyard_api.agent import Agent
from runyard_api.conditions import ConditionType, find_condition
from runyard_api.crd import Manifest
from runyard_api.errors import RunyardError, Unavailable
from runyard_api.names import AGENT_FINALIZER, LABEL_AGENT
from runyard_kube import errors as kube
from runyard_kube.client import Selection
from runyard_kube.resources import AGENTS, PODS
from runyard_operator.agents.decide import decide
from runyard_operator.agents.discovery import discover, speaking
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentPlan
from runyard_operator.agents.observe import AgentMemory, observe
from runyard_operator.agents.pods import create_pod, delete_pod, mark_pod
from runyard_operator.seen import PodView, agent_of
from runyard_operator.workqueue import Key
from runyard_operator.world import World, thread_of

ASK_AGAIN_SECONDS = 5.0
TOLD = timedelta(minutes=10)
"""How long what a pod told is taken for what the next pods serve."""
LEAVING_SECONDS = 1.0
"""How soon a deleted Agent whose pods seem gone is looked at again when the API server still has one."""

log = structlog.get_logger()


async def reconcile_agent(world: World, memory: dict[Key, AgentMemory], key: Key) -> float | None:
    """Brings one Agent a step further; returns the seconds until it must be looked at again, or None.

    Raises KubeError: the queue repeats it later.
    """
    agent = world.caches.agents.get(*key)
    if agent is not None and not agent.deleting and AGENT_FINALIZER not in agent.metadata.finalizers:
        agent = await _hold(world, agent)
    pods = world.caches.pods.group("agent", key.namespace, key.name)
    follow(world, key, pods)
    if agent is None:
        memory.pop(key, None)
        return None
    kept = memory.setdefault(key, AgentMemory())
    kept.asked_away &= {pod.uid for pod in pods}
    # No awaiting between what is seen and what is retired: a run could be given to a pod that seemed idle.
    seen = observe(world, kept, agent, [pod for pod in pods if pod.owner_uid == agent.metadata.uid])
    plan = decide(seen, world.now(), env_secret_prefix=world.settings.env_secret_prefix)
    _retire(world, key, agent, plan)
    if agent.deleting:
        _wake_waiting_runs(world, key)
    await _apply(world, kept, agent, plan)
    delays = [await _release(world, agent) if plan.release else await _discover(world, kept, agent)]
    if plan.due is not None:
        delays.append(max(0.0, (plan.due - world.now()).total_seconds()))
    return min((delay for delay in delays if delay is not None), default=None)


def follow(world: World, key: Key, pods: Iterable[PodView]) -> None:
    """Opens a link to each pod that may answer and closes those of pods that can't any more."""
    reachable = {pod.name: pod for pod in pods if pod.reachable}
    for link in world.links.of_agent(key):
        if link.pod.name not in reachable or reachable[link.pod.name].uid != link.pod.uid:
            world.links.close(link.pod)
    for pod in reachable.values():
        world.links.open(pod, took_over=pod.uid in world.inherited)


def _retire(world: World, key: Key, agent: Agent, plan: AgentPlan) -> None:
    hash8, before = hash_of(agent.spec), 0
    for link in world.links.of_agent(key):
        before += link.retired
        link.retired = link.pod.name in plan.pods.retire
        link.outdated = link.pod.hash8 != hash8
    if before > len(plan.pods.retire):
        world.links.wake_waiting(key)


def _wake_waiting_runs(world: World, key: Key) -> None:
    for run in world.caches.runs.group("agent", *key):
        if not run.state.finished and run.status.pod_name is None:
            world.run_queue.add(thread_of(run))


async def _apply(world: World, kept: AgentMemory, agent: Agent, plan: AgentPlan) -> None:
    starts = kept.starts[hash_of(agent.spec)]
    for pod in plan.pods.mark:
        await mark_pod(world, pod)
    for pod in plan.pods.delete:
        if pod.uid in kept.asked_away:
            continue
        link = world.links.get(pod.namespace, pod.name)
        if link is not None and link.connected and pod.hash8 == hash_of(agent.spec):
            starts.note_worked()
        await delete_pod(world, pod)
        kept.asked_away.add(pod.uid)
    for name in plan.pods.create:
        if not await create_pod(world, starts, agent, name):
            break
    if plan.status is not None:
        _log_transition(agent, plan)
        raw = await _write_status(world, agent, plan.status.to_json())
        kept.written = world.now()
        if raw is not None and world.caches.agents.put(written := agent_of(raw)):
            _tell_graphs(world, agent, written)


def _tell_graphs(world: World, before: Agent, after: Agent) -> None:
    """Wakes those who wait to learn which graphs the Agent serves: the watch will tell of nothing new."""
    if before.graph_ids == after.graph_ids:
        return
    meta = after.metadata
    for run in world.caches.runs.group("unadmitted", meta.namespace, meta.name):
        world.run_queue.add(thread_of(run))
    for other in world.caches.agents:
        if other.metadata.namespace == meta.namespace:
            world.agent_queue.add(Key(meta.namespace, other.metadata.name))


async def _discover(world: World, kept: AgentMemory, agent: Agent) -> float | None:
    """Has a pod tell what the template serves, unless one did a while ago; the next look knows it."""
    hash8, key = hash_of(agent.spec), Key(agent.metadata.namespace, agent.metadata.name)
    known = kept.discovered == hash8 and kept.told_at is not None and world.now() - kept.told_at < TOLD
    link = None if known else speaking(world.links.of_agent(key), hash8)
    if link is None:
        return None
    try:
        await discover(world, agent, link)
    except Unavailable as error:
        log.warning("graphs can't be kept", agent=agent.metadata.name, why=error.detail)
        return ASK_AGAIN_SECONDS
    kept.discovered, kept.told_at = hash8, world.now()
    return 0.0


async def _hold(world: World, agent: Agent) -> Agent | None:
    """Puts our finalizer on a new Agent, before any pod is made; None when it is gone or changed meanwhile."""
    held = await _patch_finalizers(world, agent, [*agent.metadata.finalizers, AGENT_FINALIZER])
    return world.caches.agents.get(agent.metadata.namespace, agent.metadata.name) if held else None


async def _release(world: World, agent: Agent) -> float | None:
    """Lets a deleted Agent go, once the API server confirms that no pod of it is left."""
    meta = agent.metadata
    listing = await world.cluster.list(
        PODS, meta.namespace, selection=Selection(labels=f"{LABEL_AGENT}={meta.name}"), metadata_only=True
    )
    if any(_lives(raw["metadata"], agent) for raw in listing.items):
        return LEAVING_SECONDS
    if AGENT_FINALIZER not in meta.finalizers:
        return None
    try:
        await world.rows.forget_graphs(meta.name)
    except RunyardError as error:
        log.warning("graphs of a deleted agent stay", agent=meta.name, why=error.detail)
    log.info("agent gone", agent=meta.name)
    others = [one for one in meta.finalizers if one != AGENT_FINALIZER]
    return None if await _patch_finalizers(world, agent, others) else LEAVING_SECONDS


def _lives(meta: Manifest, agent: Agent) -> bool:
    """Whether a pod, by its metadata, is the Agent's and hasn't been asked away."""
    owned = any(owner["uid"] == agent.metadata.uid for owner in meta.get("ownerReferences") or ())
    return owned and not meta.get("deletionTimestamp")


async def _patch_finalizers(world: World, agent: Agent, finalizers: list[str]) -> bool:
    """Replaces the list if the Agent is still as it was seen; False when it isn't: the watch tells how it is."""
    meta = agent.metadata
    body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
    try:
        world.caches.agents.put(agent_of(await world.cluster.patch(AGENTS, meta.namespace, meta.name, body)))
    except (kube.NotFound, kube.Conflict):
        return False
    return True


async def _write_status(world: World, agent: Agent, status: Manifest) -> Manifest | None:
    """Writes the status if the Agent is still as it was seen; otherwise the next look does. None: not written."""
    meta = agent.metadata
    try:
        return await world.cluster.patch_status(
            AGENTS, meta.namespace, meta.name, status, resource_version=meta.resource_version
        )
    except (kube.NotFound, kube.Conflict):
        return None


def _log_transition(agent: Agent, plan: AgentPlan) -> None:
    assert plan.status is not None
    before, after = agent.ready, find_condition(plan.status.conditions, ConditionType.READY)
    if after is not None and (before is None or (before.status, before.reason) != (after.status, after.reason)):
        log.info(
            "agent changed", agent=agent.metadata.name, ready=after.status.value, reason=after.reason, why=after.message
        )
