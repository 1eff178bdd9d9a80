"""The reconcile of one Agent: follows its pods, makes and deletes them, writes its status. Handles Agent keys."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from runyard_api.agent import Agent
from runyard_api.conditions import AgentReason, ConditionType, find_condition
from runyard_api.crd import Manifest
from runyard_api.states import RunState
from runyard_api.tokens import pod_token, token_hash
from runyard_kube import errors as kube
from runyard_kube.resources import AGENTS, PODS
from runyard_operator.agents.decide import agent_graphs, decide
from runyard_operator.agents.manifests import PodIdentity, agent_pod, hash_of
from runyard_operator.agents.model import AgentObserved, AgentPlan, PodSeen, StartsSeen
from runyard_operator.agents.problems import Problem, problem_of_pod
from runyard_operator.agents.starts import Starts
from runyard_operator.seen import PodView, agent_of, pod_of
from runyard_operator.workqueue import Key
from runyard_operator.world import World

UNSEEN_SECONDS = 1.0
"""How long the watch has to tell of a pod that exists though it isn't cached."""

log = structlog.get_logger()


@dataclass
class AgentMemory:
    """Kept between two looks at an Agent, lost with the process without harm."""

    starts: dict[str, Starts] = field(default_factory=dict)
    written: datetime | None = None


async def reconcile_agent(world: World, memory: dict[Key, AgentMemory], key: Key) -> float | None:
    """Brings one Agent a step further; returns the seconds until it must be looked at again, or None.

    Raises KubeError: the queue repeats it later.
    """
    pods = world.caches.pods.group("agent", key.namespace, key.name)
    follow(world, key, pods)
    agent = world.caches.agents.get(*key)
    if agent is None or agent.metadata.deletion_timestamp is not None:
        memory.pop(key, None)
        return None
    kept = memory.setdefault(key, AgentMemory())
    seen = _observe(world, kept, agent, [pod for pod in pods if pod.owner_uid == agent.metadata.uid])
    plan = decide(seen, world.now(), env_secret_prefix=world.settings.env_secret_prefix)
    await _apply(world, kept, agent, plan)
    if plan.due is None:
        return None
    return max(0.0, (plan.due - world.now()).total_seconds())


def follow(world: World, key: Key, pods: Iterable[PodView]) -> None:
    """Opens a link to each pod that may answer and closes those of pods that can't any more."""
    reachable = {pod.name: pod for pod in pods if pod.reachable}
    for link in world.links.of_agent(key):
        if link.pod.name not in reachable or reachable[link.pod.name].uid != link.pod.uid:
            world.links.close(link.pod)
    for pod in reachable.values():
        world.links.open(pod, took_over=pod.uid in world.inherited)


def _observe(world: World, kept: AgentMemory, agent: Agent, pods: list[PodView]) -> AgentObserved:
    hash8, now = hash_of(agent.spec), world.now()
    for other in [h for h in kept.starts if h != hash8]:
        del kept.starts[other]
    starts = kept.starts.setdefault(hash8, Starts())
    seen = tuple(_pod_seen(world, pod) for pod in pods)
    current = [one for one in seen if one.pod.hash8 == hash8]
    starts.note_usable(any(one.usable for one in current), now)
    for one in current:
        if one.pod.ended and (problem := problem_of_pod(one.pod, agent.spec.image)) is not None:
            starts.note_failure(one.pod.uid, problem, now)
    return AgentObserved(
        agent=agent,
        pods=seen,
        starts=StartsSeen(starts.failures, starts.not_before, starts.problem),
        taken=_taken(world, agent),
        status_written=kept.written,
        hold_until=world.links.hold_until(Key(agent.metadata.namespace, agent.metadata.name)),
    )


def _pod_seen(world: World, pod: PodView) -> PodSeen:
    link = world.links.get(pod.namespace, pod.name)
    on_it = world.caches.runs.group("pod", pod.namespace, pod.name)
    needed = any(run.state is RunState.RUNNING and run.status.pod_nonce == pod.nonce for run in on_it)
    if link is None or link.pod.uid != pod.uid:
        return PodSeen(pod, needed=needed)
    return PodSeen(
        pod,
        usable=link.usable,
        draining=link.draining or pod.draining or link.retired,
        busy=link.slots.busy,
        needed=needed or bool(link.held),
        graphs=link.graphs,
    )


def _taken(world: World, agent: Agent) -> dict[str, str]:
    """Graph ids that older Agents of the namespace serve too, with the oldest of them."""
    others = [a for a in world.caches.agents if a.metadata.namespace == agent.metadata.namespace]
    taken: dict[str, str] = {}
    for other in sorted((a for a in others if _age(a) < _age(agent)), key=_age):
        for graph in agent_graphs(other):
            if graph in agent_graphs(agent):
                taken.setdefault(graph, other.metadata.name)
    return taken


def _age(agent: Agent) -> tuple[float, str]:
    created = agent.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, agent.metadata.name)


async def _apply(world: World, kept: AgentMemory, agent: Agent, plan: AgentPlan) -> None:
    for link in world.links.of_agent(Key(agent.metadata.namespace, agent.metadata.name)):
        link.retired = link.pod.name in plan.retire
    for pod in plan.delete:
        await _delete_pod(world, pod)
    for name in plan.create:
        if not await _create_pod(world, kept, agent, name):
            break
    if plan.status is not None:
        _log_transition(agent, plan)
        raw = await _write_status(world, agent, plan.status.to_json())
        kept.written = world.now()
        if raw is not None:
            world.caches.agents.put(agent_of(raw))


async def _create_pod(world: World, kept: AgentMemory, agent: Agent, name: str) -> bool:
    """Makes one pod; one of that name that is ours already is as good. False: the API server refuses pods."""
    namespace, nonce, again = agent.metadata.namespace, world.nonce(), 0.0
    token = pod_token(world.settings.token_key, namespace=namespace, pod=name, nonce=nonce)
    identity = PodIdentity(name, nonce, token_hash(token))
    body = agent_pod(agent, identity, database_secret=world.settings.agent_database_secret)
    try:
        pod = pod_of(await world.cluster.create(PODS, namespace, body))
    except kube.AlreadyExists:
        pod, again = pod_of(await world.cluster.get(PODS, namespace, name)), UNSEEN_SECONDS
    except (kube.Invalid, kube.Forbidden) as refusal:
        problem = Problem(AgentReason.POD_REFUSED, refusal.message)
        kept.starts[hash_of(agent.spec)].note_refusal(problem, world.now())
        log.warning("pod refused", agent=agent.metadata.name, pod=name, why=refusal.message)
        world.agent_queue.add(Key(namespace, agent.metadata.name))
        return False
    world.caches.pods.put(pod)
    if pod.owner_uid != agent.metadata.uid:
        problem = Problem(AgentReason.POD_REFUSED, f"a pod named {name} exists and isn't this Agent's")
        kept.starts[hash_of(agent.spec)].note_refusal(problem, world.now())
        return False
    log.info("pod created", agent=agent.metadata.name, pod=name)
    world.agent_queue.add_after(Key(namespace, agent.metadata.name), again)
    return True


async def _delete_pod(world: World, pod: PodView) -> None:
    log.info("pod deleted", agent=pod.agent, pod=pod.name, phase=pod.phase)
    try:
        await world.cluster.delete(PODS, pod.namespace, pod.name, uid=pod.uid)
    except (kube.NotFound, kube.Conflict):
        log.debug("pod is gone", pod=pod.name)


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
