"""Gathers what is known of one Agent: its pods from the cache and from themselves, what there is to do, how starts
went. Called by `reconcile`; no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from runyard_api.agent import Agent
from runyard_api.names import ANNOTATION_WANTED_AT
from runyard_api.states import RunState
from runyard_operator.agents.demand import Demand, Load, clamped, desired_pods, lapses_at
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentObserved, PodSeen, StartsSeen, Wanted
from runyard_operator.agents.problems import problem_of_pod
from runyard_operator.agents.starts import Starts
from runyard_operator.seen import PodView
from runyard_operator.workqueue import Key
from runyard_operator.world import World


@dataclass
class AgentMemory:
    """Kept between two looks at an Agent, lost with the process without harm. `starts` by template hash; `demand` None
    before the first look; `discovered`: the template whose graphs a pod told at `told_at`; `asked_away`: uids of pods
    that were deleted and may not look like it yet."""

    starts: dict[str, Starts] = field(default_factory=dict)
    demand: Demand | None = None
    discovered: str | None = None
    told_at: datetime | None = None
    asked_away: set[str] = field(default_factory=set)
    written: datetime | None = None


def observe(world: World, kept: AgentMemory, agent: Agent, pods: Iterable[PodView]) -> AgentObserved:
    """Everything a decision about this Agent rests on; notes in `kept` what has happened to its pods."""
    hash8, now = hash_of(agent.spec), world.now()
    for other in [h for h in kept.starts if h != hash8]:
        del kept.starts[other]
    seen = tuple(_pod_seen(world, pod) for pod in pods)
    starts = _note_starts(kept, agent, seen, now)
    return AgentObserved(
        agent=agent,
        pods=seen,
        wanted=_wanted(world, kept, agent, seen),
        starts=StartsSeen(starts.failures, starts.not_before, starts.problem),
        taken=taken(agent, world.caches.agents),
        status_written=kept.written,
        hold_until=world.links.hold_until(Key(agent.metadata.namespace, agent.metadata.name)),
    )


def _note_starts(kept: AgentMemory, agent: Agent, seen: Iterable[PodSeen], now: datetime) -> Starts:
    """Counts the ends of pods that nobody asked away."""
    hash8 = hash_of(agent.spec)
    starts = kept.starts.setdefault(hash8, Starts())
    current = [one for one in seen if one.pod.hash8 == hash8]
    starts.note_usable(any(one.usable for one in current), now)
    for one in current:
        asked_away = one.pod.deleting or one.pod.draining
        if one.pod.ended and not asked_away and (problem := problem_of_pod(one.pod, agent.spec.image)) is not None:
            starts.note_failure(one.pod.uid, problem, now)
    return starts


def _pod_seen(world: World, pod: PodView) -> PodSeen:
    link = world.links.get(pod.namespace, pod.name)
    on_it = world.caches.runs.group("pod", pod.namespace, pod.name)
    needed = any(run.state is RunState.RUNNING and run.status.pod_nonce == pod.nonce for run in on_it)
    if link is None or link.pod.uid != pod.uid:
        return PodSeen(pod, needed=needed)
    return PodSeen(
        pod,
        answers_since=link.connected_since,
        usable=link.usable,
        spent=link.slots.spent,
        stopping=link.draining,
        retired=link.retired,
        busy=link.slots.busy,
        most=link.slots.take_most(),
        needed=needed or bool(link.held),
        graphs=link.graphs,
    )


def _wanted(world: World, kept: AgentMemory, agent: Agent, seen: tuple[PodSeen, ...]) -> Wanted:
    """How many pods there should be. The first look of an operator takes those that are there as needed until now."""
    key, now, spec = Key(agent.metadata.namespace, agent.metadata.name), world.now(), agent.spec
    hash8 = hash_of(spec)
    discovered = hash8 in (kept.discovered, agent.status.template_hash)
    staying = [one for one in seen if one.alive and not one.leaving]
    load = Load(
        running=sum(one.busy for one in staying),
        dispatchable=world.links.waiting.count(key),
        wanted_at=wanted_at(agent),
        discovered=discovered,
    )
    if kept.demand is None:
        kept.demand = Demand()
        kept.demand.note(len(staying), now)
    # Runs that came and went since the last look needed a pod too.
    kept.demand.note(desired_pods(spec, replace(load, running=sum(one.most for one in staying)), now), now)
    pods = desired_pods(spec, load, now)
    kept.demand.note(pods, now)
    idle = spec.replicas.idle_seconds
    falls = [kept.demand.falls_at(idle, now), lapses_at(load.wanted_at, now)]
    return Wanted(
        now=pods,
        kept=clamped(spec, kept.demand.highest(idle, now)),
        falls_at=min((at for at in falls if at is not None), default=None),
        discovered=discovered,
    )


def wanted_at(agent: Agent) -> datetime | None:
    """When a request last needed the Agent's graph code; None: never, or what is written there is no time."""
    try:
        at = datetime.fromisoformat(agent.metadata.annotations.get(ANNOTATION_WANTED_AT, ""))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def taken(agent: Agent, agents: Iterable[Agent]) -> dict[str, str]:
    """Graph ids that older Agents of the namespace serve too, with the oldest of them."""
    others = [a for a in agents if a.metadata.namespace == agent.metadata.namespace]
    found: dict[str, str] = {}
    for other in sorted((a for a in others if _age(a) < _age(agent)), key=_age):
        for graph in other.graph_ids:
            if graph in agent.graph_ids:
                found.setdefault(graph, other.metadata.name)
    return found


def _age(agent: Agent) -> tuple[float, str]:
    created = agent.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, agent.metadata.name)
