"""What to do for the runs of one thread: Observed and a time in, a Plan out. Pure; called by `reconcile`.

The order between runs, and what cancels what, is `runyard_api.dispatch.plan_thread`'s; here are the steps of each run
around it: admission, ends, losses, deadlines, expiry.
"""

from datetime import datetime, timedelta

from runyard_api.agent import Agent, RunDefaults
from runyard_api.conditions import ConditionType, RunReason, find_condition
from runyard_api.deadline import past_deadline
from runyard_api.dispatch import SeenRun, plan_thread
from runyard_api.internal import RunError
from runyard_api.run import Run
from runyard_api.states import CancelAction, RunState
from runyard_operator.runs.model import (
    Action,
    Admit,
    AgentSeen,
    AwaitAgent,
    Dispatch,
    End,
    EndUnheld,
    Expire,
    Forget,
    Observed,
    Plan,
    RecordEnd,
    RecordLoss,
    RecordRunning,
    Refuse,
    RunSeen,
    SettleStray,
    Stop,
    Wait,
)

UNKNOWN_AGENT_SECONDS = 120
"""How long a run waits for an Agent that doesn't exist: the default of `pendingDeadlineSeconds`."""


def decide(seen: Observed, now: datetime, *, unknown_agent_seconds: int = UNKNOWN_AGENT_SECONDS) -> Plan:
    """The plan for one thread. Two calls with the same arguments give the same plan."""
    return _Thread(seen, now, unknown_agent_seconds).plan()


class _Thread:
    """Collects the plan of one thread."""

    def __init__(self, seen: Observed, now: datetime, unknown_agent_seconds: int) -> None:
        self.seen = seen
        self.now = now
        self.unknown_agent_seconds = unknown_agent_seconds
        self.actions: list[Action] = []
        self.due: datetime | None = None

    def plan(self) -> Plan:
        self.actions += [SettleStray(pod, held) for pod, held in self.seen.strays]
        for one in self.seen.runs:
            self._settle(one)
        waiting = [one for one in self.seen.runs if _waits_for_admission(one)]
        for one in sorted(waiting, key=_age):
            self._admit(one)
        self._order([one for one in self.seen.runs if _in_order(one)])
        return Plan(tuple(self.actions), self.due)

    def _settle(self, one: RunSeen) -> None:
        """What follows from this run alone: its end, a loss, a binding not written down yet, expiry."""
        run = one.run
        if one.ended_on_pod:
            assert one.held is not None
            self.actions.append(RecordEnd(one, End(one.held.state, one.held.error, one.held.rolled_back)))
        elif run.state.finished:
            self._expire(one)
        elif one.lost is not None:
            self.actions.append(RecordLoss(one, one.lost))
        elif one.unanswered is not None:
            self.actions.append(Dispatch(one, one.unanswered, one.pod, self._deadline(one)))
        elif one.held is not None and not one.gone and not _written_down(one):
            self.actions.append(RecordRunning(one))

    def _expire(self, one: RunSeen) -> None:
        if one.gone:
            self.actions.append(Forget(one))
            return
        ended = one.run.status.completion_time or self.now
        at = ended + timedelta(seconds=self._ttl(one))
        if one.surplus or at <= self.now:
            self.actions.append(Expire(one))
        else:
            self._look_again(at)

    def _ttl(self, one: RunSeen) -> int:
        own = one.run.spec.ttl_seconds_after_finished
        return self._defaults(one).ttl_seconds_after_finished if own is None else own

    def _admit(self, one: RunSeen) -> None:
        """A hand-written Run gets its row as soon as its graph is known, and never one if that can't be known."""
        if one.gone:
            self.actions.append(Forget(one))
            return
        if (action := one.run.cancel_action) is not None:
            self.actions.append(Refuse(one, RunReason.CANCELLED, f"cancelled ({action}) before it was admitted"))
            return
        agent = self._agent(one)
        if agent.agent is not None and agent.agent.deleting:
            self.actions.append(Refuse(one, RunReason.AGENT_DELETED, _deleted(agent.name)))
            return
        chosen, problem = _graph(one.run.spec.graph_id, agent.agent)
        if problem is not None:
            self.actions.append(Refuse(one, RunReason.UNKNOWN_GRAPH, problem))
        elif chosen is not None:
            self.actions.append(Admit(one, chosen))
        elif (end := self._overdue(one, None)) is not None:
            assert end.error is not None
            self.actions.append(Refuse(one, end.reason or RunReason.AGENT_NOT_READY, end.error.message))
        elif agent.agent is None:
            self.actions.append(AwaitAgent(one, _not_ready(agent)[1]))

    def _order(self, runs: list[RunSeen]) -> None:
        """Cancels first, then the lowest unfinished run may go to a pod."""
        by_id = {one.run.run_id: one for one in runs}
        plan = plan_thread((_for_planning(one) for one in runs), self.now)
        for run_id, action in plan.finish:
            self.actions.append(EndUnheld(by_id[run_id], _cancelled(action)))
        for run_id, action in plan.stop:
            one = by_id[run_id]
            if one.lost is None and one.unanswered is None and one.stopping is not action:
                self.actions.append(Stop(one, action, _cancel_reason(one)))
        if plan.dispatch is not None:
            self._dispatch(by_id[plan.dispatch])
        if plan.due is not None:
            self._look_again(plan.due)

    def _dispatch(self, one: RunSeen) -> None:
        agent = self._agent(one)
        if one.run.status.start_time is not None:
            self._look_again(one.run.status.start_time + timedelta(seconds=self._deadline(one)))
        if (late := past_deadline(one.run.status.start_time, self._deadline(one), self.now)) is not None:
            self.actions.append(EndUnheld(one, End(RunState.TIMEOUT, late)))
        elif (one.run.status.failures or 0) >= self._defaults(one).max_failures:
            message = f"the pod of the run failed {one.run.status.failures} times"
            self.actions.append(EndUnheld(one, _failed(RunReason.TOO_MANY_FAILURES, message)))
        elif agent.hold_until is not None and agent.hold_until > self.now:
            self._look_again(agent.hold_until)
            self.actions.append(Wait(one, "waits for a pod to report what it runs"))
        elif agent.unusable_since is None:
            self.actions.append(Dispatch(one, one.used + 1, deadline_seconds=self._deadline(one)))
        elif agent.agent is not None and agent.agent.deleting:
            self.actions.append(EndUnheld(one, _failed(RunReason.AGENT_DELETED, _deleted(agent.name))))
        elif (end := self._overdue(one, agent.waits_since or self.now)) is not None:
            self.actions.append(EndUnheld(one, end))
        else:
            reason = RunReason.PENDING if agent.agent else RunReason.UNKNOWN_AGENT
            self.actions.append(Wait(one, _not_ready(agent)[1], reason))

    def _overdue(self, one: RunSeen, wanted: datetime | None) -> End | None:
        """How the run ends if its Agent had no usable pod for too long; otherwise looks again when that will be.
        `wanted`: since when it wants one, if that isn't all its life: an Agent at zero wasn't broken before."""
        agent = self._agent(one)
        created = one.run.metadata.creation_timestamp or self.now
        seconds = agent.agent.spec.pending_deadline_seconds if agent.agent else self.unknown_agent_seconds
        since = max(created, agent.unusable_since or created, wanted or created)
        if agent.agent is None:
            since = min(since, _unknown_since(one.run) or since)
        deadline = since + timedelta(seconds=seconds)
        if deadline > self.now:
            self._look_again(deadline)
            return None
        error, message = _not_ready(agent)
        reason = RunReason.AGENT_NOT_READY if agent.agent else RunReason.UNKNOWN_AGENT
        return End(RunState.ERROR, RunError(error=error, message=message), reason=reason)

    def _deadline(self, one: RunSeen) -> int:
        return one.run.spec.active_deadline_seconds or self._defaults(one).active_deadline_seconds

    def _defaults(self, one: RunSeen) -> RunDefaults:
        agent = self._agent(one).agent
        return agent.spec.run_defaults if agent else RunDefaults()

    def _agent(self, one: RunSeen) -> AgentSeen:
        return self.seen.agents[one.run.spec.agent_name]

    def _look_again(self, at: datetime) -> None:
        self.due = at if self.due is None else min(self.due, at)


def _unknown_since(run: Run) -> datetime | None:
    """Since when the run is known to wait for an Agent that isn't there, whoever was the operator then."""
    told = find_condition(run.status.conditions, ConditionType.SUCCEEDED)
    return told.last_transition_time if told is not None and told.reason == RunReason.UNKNOWN_AGENT else None


def _waits_for_admission(one: RunSeen) -> bool:
    return one.run.sequence is None and not one.run.state.finished


def _age(one: RunSeen) -> tuple[float, str]:
    created = one.run.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, one.run.metadata.name)


def _in_order(one: RunSeen) -> bool:
    """Takes part in the thread's order: unfinished, and its loss is written down before anything else is done."""
    return one.run.sequence is not None and not one.run.state.finished and not one.ended_on_pod


def _for_planning(one: RunSeen) -> SeenRun:
    """A lost run counts as bound until its loss is recorded; a deleted object is a cancel."""
    run = one.run
    return SeenRun(
        run_id=run.run_id,
        sequence=run.sequence or 0,
        state=run.state,
        strategy=run.strategy,
        bound=one.pod is not None,
        cancel=run.cancel_action or (CancelAction.INTERRUPT if one.gone else None),
        not_before=run.spec.not_before,
    )


def _written_down(one: RunSeen) -> bool:
    status = one.run.status
    assert one.held is not None
    return status.state is RunState.RUNNING and status.pod_name == one.pod and status.attempt == one.held.attempt


def _cancelled(action: CancelAction) -> End:
    return End(RunState.INTERRUPTED, rolled_back=action is CancelAction.ROLLBACK, reason=RunReason.CANCELLED)


def _failed(reason: RunReason, message: str) -> End:
    return End(RunState.ERROR, RunError(error=reason.value, message=message), reason=reason)


def _cancel_reason(one: RunSeen) -> str:
    """For the pod's log, so in our own words: what a caller gave as the reason is in the Run alone."""
    if one.gone:
        return "the Run was deleted"
    return "cancelled" if one.run.spec.cancel else "a newer run of the thread replaces it"


def _deleted(agent: str) -> str:
    return f"Agent {agent!r} is being deleted"


def _not_ready(seen: AgentSeen) -> tuple[str, str]:
    """Error word and sentence for a run whose Agent has no usable pod."""
    if seen.agent is None:
        return RunReason.UNKNOWN_AGENT.value, f"Agent {seen.name!r} doesn't exist"
    ready = seen.agent.ready
    if ready is None or seen.agent.is_ready:
        return RunReason.AGENT_NOT_READY.value, f"Agent {seen.name!r} has no usable pod"
    return ready.reason, f"Agent {seen.name!r} has no usable pod: {ready.message or ready.reason}"


def _graph(wanted: str | None, agent: Agent | None) -> tuple[str | None, str | None]:
    """(graph to execute, None), (None, why none can be), or (None, None) while the Agent's graphs aren't known."""
    known = sorted({*(agent.spec.graphs or ()), *agent.status.graphs}) if agent else []
    if not known:
        return wanted, None
    if wanted is None:
        if len(known) == 1:
            return known[0], None
        return None, f"spec.graphId must name one of the Agent's graphs: {', '.join(known)}"
    if wanted not in known:
        return None, f"spec.graphId {wanted!r} isn't one of the Agent's graphs: {', '.join(known)}"
    return wanted, None
