"""What to do for one Agent: its pods, and what its status says. Pure; called by `reconcile`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from runyard_api.agent import Agent, AgentPodStatus, AgentStatus
from runyard_api.conditions import AgentReason, Condition, ConditionType, set_condition
from runyard_api.names import agent_pod_name
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentObserved, AgentPlan, PodSeen
from runyard_operator.agents.problems import Problem, problem_of_pod, problem_of_spec
from runyard_operator.seen import PodView

BUSY_SECONDS = 2.0
"""A status in which only the number of busy slots changed is written at most this often."""


def decide(seen: AgentObserved, now: datetime, *, env_secret_prefix: str) -> AgentPlan:
    """The plan for one Agent. Two calls with the same arguments give the same plan."""
    agent = seen.agent
    refused = problem_of_spec(agent.spec, env_secret_prefix=env_secret_prefix)
    hash8 = hash_of(agent.spec)
    current = [p for p in seen.pods if p.pod.hash8 == hash8]
    missing = agent.spec.replicas.max - sum(p.alive for p in current)
    waits_until = _waits_until(seen, now) if missing > 0 and refused is None else None
    create = () if refused or waits_until else tuple(_free_names(agent.metadata.name, hash8, seen.pods, missing))
    status = _status(seen, hash8, refused, now)
    write, write_at = _when_to_write(seen, status, now)
    return AgentPlan(
        create=create,
        delete=tuple(_to_delete(seen.pods, hash8)),
        retire=frozenset(p.pod.name for p in seen.pods if _replaced(p, hash8, seen.pods)),
        status=status if write else None,
        due=min((at for at in (waits_until, write_at) if at is not None), default=None),
    )


def _replaced(one: PodSeen, hash8: str, pods: Iterable[PodSeen]) -> bool:
    """Whether a pod of an older template has a successor that takes runs."""
    return one.pod.hash8 != hash8 and any(p.usable and p.pod.hash8 == hash8 for p in pods)


def _to_delete(pods: tuple[PodSeen, ...], hash8: str) -> Iterable[PodView]:
    """Ended pods, and pods of an older template that are replaced or never took runs; not before their runs are
    settled."""
    for one in pods:
        useless = one.pod.hash8 != hash8 and not one.usable and not one.draining
        over = one.pod.ended or useless or _replaced(one, hash8, pods)
        if over and not one.pod.deleting and not one.needed and not one.busy:
            yield one.pod


def _waits_until(seen: AgentObserved, now: datetime) -> datetime | None:
    at = seen.starts.not_before
    return at if at is not None and at > now else None


def _free_names(agent: str, hash8: str, pods: tuple[PodSeen, ...], count: int) -> Iterable[str]:
    """The lowest free indexes; the name of a pod that is still going away isn't free."""
    taken = {p.pod.name for p in pods}
    index = 0
    while count > 0:
        if (name := agent_pod_name(agent, hash8, index)) not in taken:
            count -= 1
            yield name
        index += 1


def _status(seen: AgentObserved, hash8: str, refused: Problem | None, now: datetime) -> AgentStatus:
    agent = seen.agent
    alive = [p for p in seen.pods if p.alive]
    usable = [p for p in alive if p.usable]
    graphs = next((p.graphs for p in sorted(usable, key=lambda p: p.pod.hash8 != hash8) if p.graphs), None)
    return AgentStatus(
        observed_generation=agent.metadata.generation,
        conditions=_conditions(seen, hash8, refused, now),
        replicas=len(alive),
        ready_replicas=len(usable),
        busy=sum(p.busy for p in alive),
        template_hash=hash8,
        graphs=tuple(sorted(graphs)) if graphs is not None else agent.status.graphs,
        pods=tuple(_pod_status(p, hash8, alive) for p in sorted(alive, key=lambda p: p.pod.name)),
    )


def _pod_status(one: PodSeen, hash8: str, alive: list[PodSeen]) -> AgentPodStatus:
    return AgentPodStatus(
        name=one.pod.name,
        endpoint=one.pod.endpoint,
        nonce=one.pod.nonce,
        ready=one.usable,
        draining=one.draining or _replaced(one, hash8, alive),
    )


@dataclass(frozen=True)
class _Judgement:
    status: bool
    reason: AgentReason
    message: str = ""


def _conditions(seen: AgentObserved, hash8: str, refused: Problem | None, now: datetime) -> tuple[Condition, ...]:
    """Ready and Progressing always, GraphConflict only where there is one."""
    agent, generation = seen.agent, seen.agent.metadata.generation
    judged = {
        ConditionType.READY: _ready(seen, hash8, refused),
        ConditionType.PROGRESSING: _progressing(seen, hash8, refused),
    }
    if seen.taken:
        told = ", ".join(f"{graph!r} is served by Agent {other!r}" for graph, other in sorted(seen.taken.items()))
        judged[ConditionType.GRAPH_CONFLICT] = _Judgement(True, AgentReason.DUPLICATE_GRAPH, told)
    conditions = tuple(c for c in agent.status.conditions if c.type in set(judged))
    for kind, one in judged.items():
        conditions = set_condition(
            conditions, kind, one.status, reason=one.reason, message=one.message, generation=generation, now=now
        )
    return conditions


def _ready(seen: AgentObserved, hash8: str, refused: Problem | None) -> _Judgement:
    alive = [p for p in seen.pods if p.alive]
    usable = sum(p.usable for p in alive)
    if usable:
        return _Judgement(True, AgentReason.AVAILABLE, f"{usable} of {seen.agent.spec.replicas.max} pods take runs")
    problem = refused or _pods_problem(seen, hash8)
    if problem is None:
        return _Judgement(False, AgentReason.PODS_STARTING, "no pod takes runs yet")
    return _Judgement(False, problem.reason, problem.message)


def _progressing(seen: AgentObserved, hash8: str, refused: Problem | None) -> _Judgement:
    """Whether pods are being started or replaced; its message carries what is in the way though older pods work."""
    problem = refused or _pods_problem(seen, hash8)
    usable = [p for p in seen.pods if p.alive and p.usable and p.pod.hash8 == hash8]
    if refused is not None:
        return _Judgement(False, refused.reason, refused.message)
    if len(usable) >= seen.agent.spec.replicas.max:
        return _Judgement(False, AgentReason.UP_TO_DATE)
    if problem is not None:
        return _Judgement(True, problem.reason, problem.message)
    old = any(p.alive and p.pod.hash8 != hash8 for p in seen.pods)
    return _Judgement(True, AgentReason.PODS_REPLACED if old else AgentReason.PODS_STARTING)


def _pods_problem(seen: AgentObserved, hash8: str) -> Problem | None:
    """What keeps pods of the current template from taking runs: what a pod shows now, or how the last ones ended."""
    image = seen.agent.spec.image
    shown = [problem_of_pod(p.pod, image) for p in seen.pods if p.pod.hash8 == hash8 and p.alive]
    now_wrong = next((problem for problem in shown if problem is not None), None)
    if now_wrong is not None:
        return now_wrong
    past = seen.starts.problem
    if past is None or not seen.starts.failures:
        return None
    again = past.reason is AgentReason.POD_FAILED and seen.starts.failures > 1
    times = (
        f" (failed {seen.starts.failures} times; pods are started ever more slowly)" if seen.starts.failures > 1 else ""
    )
    return Problem(AgentReason.CRASH_LOOP if again else past.reason, past.message + times)


def _when_to_write(seen: AgentObserved, after: AgentStatus, now: datetime) -> tuple[bool, datetime | None]:
    """(write now, or None, when to look again): nothing changed, only `busy` changed, or more."""
    before, written, hold_until = seen.agent.status, seen.status_written, seen.hold_until
    if before == after:
        return False, None
    if hold_until is not None and hold_until > now:
        return False, hold_until
    only_busy = before == after.model_copy(update={"busy": before.busy})
    if only_busy and written is not None:
        at = written + timedelta(seconds=BUSY_SECONDS)
        return (False, at) if at > now else (True, None)
    return True, None


def agent_graphs(agent: Agent) -> tuple[str, ...]:
    """Graph ids an Agent serves, as far as they are known."""
    return tuple(sorted(agent.spec.graphs or agent.status.graphs))
