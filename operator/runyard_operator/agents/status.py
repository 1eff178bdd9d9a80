"""What the status of an Agent says: numbers, pods, conditions. Pure; called by `decide`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from runyard_api.agent import AgentPodStatus, AgentStatus
from runyard_api.conditions import AgentReason, Condition, ConditionType, set_condition
from runyard_operator.agents.crew import crew_of
from runyard_operator.agents.model import AgentObserved, PodSeen
from runyard_operator.agents.problems import Problem, problem_of_pod

BUSY_SECONDS = 2.0
"""A status in which only the number of busy slots changed is written at most this often."""


@dataclass(frozen=True)
class _Judgement:
    status: bool
    reason: AgentReason
    message: str = ""


def status_of(
    seen: AgentObserved, hash8: str, refused: Problem | None, retired: frozenset[str], now: datetime
) -> AgentStatus:
    """The whole status. `refused`: what isn't allowed in the spec; `retired`: names of pods that are to go."""
    agent = seen.agent
    alive = [p for p in seen.pods if p.alive]
    takes = sum(p.usable and p.pod.name not in retired for p in alive)
    speaking = sorted((p for p in alive if p.answers), key=lambda p: p.pod.hash8 != hash8)
    graphs = next((p.graphs for p in speaking if p.graphs), None)
    return AgentStatus(
        observed_generation=agent.metadata.generation,
        conditions=_conditions(seen, hash8, refused, takes, now),
        replicas=len(alive),
        ready_replicas=takes,
        busy=sum(p.busy for p in alive),
        template_hash=hash8 if seen.wanted.discovered else agent.status.template_hash,
        graphs=tuple(sorted(graphs)) if graphs is not None else agent.status.graphs,
        pods=tuple(_pod_status(p, retired) for p in sorted(alive, key=lambda p: p.pod.name)),
    )


def when_to_write(seen: AgentObserved, after: AgentStatus, now: datetime) -> tuple[bool, datetime | None]:
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


def _pod_status(one: PodSeen, retired: frozenset[str]) -> AgentPodStatus:
    return AgentPodStatus(
        name=one.pod.name,
        endpoint=one.pod.endpoint,
        nonce=one.pod.nonce,
        ready=one.answers,
        draining=one.leaving or one.pod.name in retired,
    )


def _conditions(
    seen: AgentObserved, hash8: str, refused: Problem | None, takes: int, now: datetime
) -> tuple[Condition, ...]:
    """Ready and Progressing always, GraphConflict only where there is one."""
    agent, generation = seen.agent, seen.agent.metadata.generation
    judged = {
        ConditionType.READY: _ready(seen, hash8, refused, takes),
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


def _ready(seen: AgentObserved, hash8: str, refused: Problem | None, takes: int) -> _Judgement:
    """Whether runs are executed: by a pod that is there, or by one that is started for them as earlier ones were."""
    if seen.agent.deleting:
        return _Judgement(False, AgentReason.DELETING, "takes no more runs; those that run may end first")
    if takes:
        return _Judgement(True, AgentReason.AVAILABLE, f"{takes} of {seen.agent.spec.replicas.max} pods take runs")
    problem = refused or pods_problem(seen, hash8)
    if problem is not None:
        return _Judgement(False, problem.reason, problem.message)
    if seen.wanted.discovered and seen.agent.spec.max_runs_per_pod:
        return _Judgement(True, AgentReason.PODS_REPLACED, "a fresh pod follows those that took what they may")
    if seen.wanted.discovered and not seen.agent.spec.replicas.min:
        return _Judgement(True, AgentReason.SCALED_TO_ZERO, "a pod is started when there is something to do")
    return _Judgement(False, AgentReason.PODS_STARTING, "no pod takes runs yet")


def _progressing(seen: AgentObserved, hash8: str, refused: Problem | None) -> _Judgement:
    """Whether pods are being started or replaced; False with what is in the way, though older pods may work."""
    if seen.agent.deleting:
        return _Judgement(False, AgentReason.DELETING)
    if refused is not None:
        return _Judgement(False, refused.reason, refused.message)
    crew = crew_of(seen.pods, hash8)
    if crew.working >= seen.wanted.now and not crew.old:
        return _Judgement(False, AgentReason.UP_TO_DATE)
    problem = pods_problem(seen, hash8)
    if problem is not None:
        return _Judgement(False, problem.reason, problem.message)
    replaced = crew.old or crew.spent or any(p.pod.hash8 != hash8 for p in crew.leaving)
    return _Judgement(True, AgentReason.PODS_REPLACED if replaced else AgentReason.PODS_STARTING)


def pods_problem(seen: AgentObserved, hash8: str) -> Problem | None:
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
