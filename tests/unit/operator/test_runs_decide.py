"""What is decided for the runs of a thread."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.builders import NAMESPACE, NOW, THREAD, agent, ago, held, run

from runyard_api.conditions import RunReason
from runyard_api.internal import RunError
from runyard_api.states import CancelAction, RunState
from runyard_operator.runs.decide import decide
from runyard_operator.runs.model import (
    Admit,
    AgentSeen,
    Dispatch,
    End,
    EndUnheld,
    Expire,
    Forget,
    Lost,
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
from runyard_operator.workqueue import Key

USABLE = AgentSeen("hello", agent())
CANCELLED = End(RunState.INTERRUPTED, reason=RunReason.CANCELLED)
ROLLED_BACK = End(RunState.INTERRUPTED, rolled_back=True, reason=RunReason.CANCELLED)


def unusable(since: datetime = NOW, **status: Any) -> AgentSeen:
    return AgentSeen("hello", agent(status=status), unusable_since=since, waits_since=since)


def plan(*runs: RunSeen, hello: AgentSeen = USABLE, strays: Any = ()) -> Plan:
    seen = Observed(Key(NAMESPACE, THREAD), runs, {"hello": hello}, strays)
    made = decide(seen, NOW)
    assert decide(seen, NOW) == made
    return made


def pending(name: str = "r1", sequence: int = 1, **facts: Any) -> RunSeen:
    return RunSeen(run(name, sequence, spec=facts.pop("spec", {}), status=facts.pop("status", {})), **facts)


def running(name: str = "r1", sequence: int = 1, **facts: Any) -> RunSeen:
    """A run that its pod reports and its object shows."""
    status = {"state": "running", "podName": "hello-0", "podNonce": "n", "attempt": 1} | facts.pop("status", {})
    seen = run(name, sequence, spec=facts.pop("spec", {}), status=status)
    defaults: dict[str, Any] = {"pod": "hello-0", "held": held(name), "used": 1}
    return RunSeen(seen, **(defaults | facts))


def by_hand(name: str = "w1", **facts: Any) -> RunSeen:
    spec = facts.pop("spec", {})
    return RunSeen(run(name, None, spec=spec, created=facts.pop("created", NOW)), **facts)


def cancel(word: str, reason: str = "") -> dict[str, Any]:
    return {"cancel": {"action": word} | ({"reason": reason} if reason else {})}


ONE = pending()
LOST = Lost("pod hello-0 was deleted", failure=False)
CASES: dict[str, tuple[Plan, tuple[Any, ...]]] = {
    "an empty thread needs nothing": (plan(), ()),
    "a run that may start later isn't given to a pod, nor is the one behind it": (
        plan(pending(spec={"notBefore": ago(-30).isoformat()}), pending("r2", 2)),
        (),
    ),
    "a run's own deadline goes with it to the pod": (
        plan(one := pending(spec={"activeDeadlineSeconds": 60})),
        (Dispatch(one, 1, deadline_seconds=60),),
    ),
    "a run that lost its pod and is past its deadline ends as timeout": (
        plan(
            one := pending(
                spec={"activeDeadlineSeconds": 60},
                status={"state": "running", "attempt": 1, "startTime": ago(61).isoformat()},
                used=1,
            )
        ),
        (
            EndUnheld(
                one,
                End(
                    RunState.TIMEOUT,
                    RunError(error="DeadlineExceeded", message="the run took longer than the 60 s it may take"),
                ),
            ),
        ),
    ),
    "a run that waits has no deadline before its first attempt": (
        plan(one := pending(spec={"activeDeadlineSeconds": 1})),
        (Dispatch(one, 1, deadline_seconds=1),),
    ),
    "a finished object that is one too many goes before its time": (
        plan(one := pending(status={"state": "success", "completionTime": ago(1).isoformat()}, surplus=True)),
        (Expire(one),),
    ),
    "the only run is given to a pod as attempt 1": (plan(ONE), (Dispatch(ONE, 1),)),
    "of two runs the lower sequence goes first": (
        plan(pending("r2", 2), one := pending("r1", 1)),
        (Dispatch(one, 1),),
    ),
    "a run that is running needs nothing and holds the next one back": (plan(running(), pending("r2", 2)), ()),
    "a run that its pod has and its object doesn't show is written down": (
        plan(one := pending(pod="hello-0", held=held(), used=1)),
        (RecordRunning(one),),
    ),
    "a run that a pod reports under a newer attempt than the object shows is written down": (
        plan(one := running(held=held(attempt=2), used=2)),
        (RecordRunning(one),),
    ),
    "an end on a pod is recorded and the next run goes out in the same step": (
        plan(one := running(held=held("r1", RunState.SUCCESS)), two := pending("r2", 2)),
        (RecordEnd(one, End(RunState.SUCCESS)), Dispatch(two, 1)),
    ),
    "an end that is recorded already is acknowledged again": (
        plan(
            one := RunSeen(run(status={"state": "success"}), pod="hello-0", held=held("r1", RunState.SUCCESS), used=1)
        ),
        (RecordEnd(one, End(RunState.SUCCESS)),),
    ),
    "an error is recorded with the pod's words": (
        plan(one := running(held=held("r1", RunState.ERROR, error=RunError(error="ValueError", message="no")))),
        (RecordEnd(one, End(RunState.ERROR, RunError(error="ValueError", message="no"))),),
    ),
    "a lost run is unbound before anything else happens to its thread": (
        plan(one := running(held=None, lost=LOST), pending("r2", 2)),
        (RecordLoss(one, LOST),),
    ),
    "a lost run that is to be cancelled is unbound first": (
        plan(one := running(held=None, lost=LOST, spec=cancel("Interrupt"))),
        (RecordLoss(one, LOST),),
    ),
    "a run whose loss is recorded goes out under the next attempt": (
        plan(one := pending(used=1, status={"attempt": 1, "failures": 1})),
        (Dispatch(one, 2),),
    ),
    "a request without an answer is repeated at the same pod under the same attempt": (
        plan(one := pending(pod="hello-0", unanswered=1)),
        (Dispatch(one, 1, "hello-0"),),
    ),
    "a request without an answer is repeated even when the run is to be cancelled": (
        plan(one := pending(pod="hello-0", unanswered=1, spec=cancel("Interrupt"))),
        (Dispatch(one, 1, "hello-0"),),
    ),
    "a run that failed as often as its Agent allows ends in error": (
        plan(one := pending(used=3, status={"attempt": 3, "failures": 3})),
        (
            EndUnheld(
                one,
                End(
                    RunState.ERROR,
                    RunError(error="TooManyFailures", message="the pod of the run failed 3 times"),
                    reason=RunReason.TOO_MANY_FAILURES,
                ),
            ),
        ),
    ),
    "a running run is stopped by its own cancel": (
        plan(one := running(spec=cancel("Interrupt", "enough"))),
        (Stop(one, CancelAction.INTERRUPT, "cancelled"),),
    ),
    "a stop is asked for once": (plan(running(spec=cancel("Interrupt"), stopping=CancelAction.INTERRUPT)), ()),
    "a stop is escalated": (
        plan(one := running(spec=cancel("Rollback"), stopping=CancelAction.INTERRUPT)),
        (Stop(one, CancelAction.ROLLBACK, "cancelled"),),
    ),
    "a newer run with Rollback stops the one before and waits": (
        plan(one := running(), pending("r2", 2, spec={"multitaskStrategy": "Rollback"})),
        (Stop(one, CancelAction.ROLLBACK, "a newer run of the thread replaces it"),),
    ),
    "a cancelled run in the queue ends without a pod and the next one goes out": (
        plan(one := pending(spec=cancel("Interrupt")), two := pending("r2", 2)),
        (EndUnheld(one, CANCELLED), Dispatch(two, 1)),
    ),
    "a rolled-back run that never ran loses row and object": (
        plan(one := pending(spec=cancel("Rollback"))),
        (EndUnheld(one, ROLLED_BACK),),
    ),
    "a rolled-back run that ran before is undone in its row, and the next one goes out": (
        plan(one := pending(spec=cancel("Rollback"), used=1), two := pending("r2", 2)),
        (EndUnheld(one, ROLLED_BACK), Dispatch(two, 1)),
    ),
    "a rolled-back run that ran before needs no pod": (
        plan(one := pending(spec=cancel("Rollback"), used=1), hello=unusable()),
        (EndUnheld(one, ROLLED_BACK),),
    ),
    "a deleted running run is stopped": (
        plan(one := running(gone=True)),
        (Stop(one, CancelAction.INTERRUPT, "the Run was deleted"),),
    ),
    "a deleted waiting run ends without a pod": (plan(one := pending(gone=True)), (EndUnheld(one, CANCELLED),)),
    "a finished run is left alone until its time is over": (
        plan(RunSeen(run(status={"state": "success", "completionTime": NOW.isoformat()}))),
        (),
    ),
    "a finished run goes when its own time to live is over": (
        plan(
            one := RunSeen(
                run(
                    spec={"ttlSecondsAfterFinished": 5},
                    status={"state": "success", "completionTime": ago(5).isoformat()},
                )
            )
        ),
        (Expire(one),),
    ),
    "a finished run goes when its Agent's time to live is over": (
        plan(
            one := RunSeen(run(status={"state": "error", "completionTime": ago(9).isoformat()})),
            hello=AgentSeen("hello", agent(runDefaults={"ttlSecondsAfterFinished": 8})),
        ),
        (Expire(one),),
    ),
    "a run without an object is settled": (
        plan(strays=(("hello-0", held("r9")),)),
        (SettleStray("hello-0", held("r9")),),
    ),
    "a run waits while its Agent has no usable pod": (
        plan(ONE, hello=unusable()),
        (Wait(ONE, "Agent 'hello' has no usable pod"),),
    ),
    "a run waits for a pod that may hold runs only it knows of": (
        plan(ONE, hello=AgentSeen("hello", agent(), hold_until=NOW + timedelta(seconds=1))),
        (Wait(ONE, "waits for a pod to report what it runs"),),
    ),
    "a hand-written run is admitted with the graph it names": (
        plan(one := by_hand()),
        (Admit(one, "echo"),),
    ),
    "a hand-written run is admitted with its Agent's only graph": (
        plan(one := by_hand(spec={"graphId": None}), hello=AgentSeen("hello", agent(status={"graphs": ["only"]}))),
        (Admit(one, "only"),),
    ),
    "hand-written runs of a thread are admitted in the order they were made": (
        plan(late := by_hand("w1"), early := by_hand("w2", created=ago(5))),
        (Admit(early, "echo"), Admit(late, "echo")),
    ),
    "a hand-written run that names none of several graphs is refused": (
        plan(one := by_hand(spec={"graphId": None}), hello=AgentSeen("hello", agent(status={"graphs": ["b", "a"]}))),
        (Refuse(one, RunReason.UNKNOWN_GRAPH, "spec.graphId must name one of the Agent's graphs: a, b"),),
    ),
    "a hand-written run that names a graph its Agent hasn't is refused": (
        plan(one := by_hand(), hello=AgentSeen("hello", agent(status={"graphs": ["a"]}))),
        (Refuse(one, RunReason.UNKNOWN_GRAPH, "spec.graphId 'echo' isn't one of the Agent's graphs: a"),),
    ),
    "a hand-written run without a graph waits until the Agent's graphs are known": (
        plan(by_hand(spec={"graphId": None}), hello=unusable()),
        (),
    ),
    "a hand-written run cancelled before it was admitted is never admitted": (
        plan(one := by_hand(spec=cancel("Interrupt"))),
        (Refuse(one, RunReason.CANCELLED, "cancelled (interrupt) before it was admitted"),),
    ),
    "a hand-written run deleted before it was admitted leaves nothing": (
        plan(one := by_hand(gone=True)),
        (Forget(one),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_decision(name: str) -> None:
    made, wanted = CASES[name]
    assert made.actions == wanted


def test_an_agent_without_usable_pods_ends_its_runs_after_its_deadline_with_its_own_reason() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "ImagePullFailed", "message": "image x: not found"}
    ready |= {"lastTransitionTime": NOW.isoformat()}
    one = RunSeen(run(created=ago(200)))
    early = plan(one, hello=unusable(ago(119), conditions=[ready]))
    assert early.due == NOW + timedelta(seconds=1)
    late = plan(one, hello=unusable(ago(120), conditions=[ready]))
    message = "Agent 'hello' has no usable pod: image x: not found"
    error = RunError(error="ImagePullFailed", message=message)
    assert late.actions == (EndUnheld(one, End(RunState.ERROR, error, reason=RunReason.AGENT_NOT_READY)),)


def test_the_deadline_of_a_young_run_counts_from_its_creation() -> None:
    one = RunSeen(run(created=ago(10)))
    assert plan(one, hello=unusable(ago(500))).due == ago(10) + timedelta(seconds=120)


def test_the_deadline_of_a_run_counts_from_when_it_first_wanted_a_pod() -> None:
    one = RunSeen(run(created=ago(500)))
    behind_others_until_now = AgentSeen("hello", agent(), unusable_since=ago(900), waits_since=ago(3))
    assert plan(one, hello=behind_others_until_now).due == ago(3) + timedelta(seconds=120)
    not_in_the_queue_yet = AgentSeen("hello", agent(), unusable_since=ago(900))
    assert plan(one, hello=not_in_the_queue_yet).due == NOW + timedelta(seconds=120)


@pytest.mark.parametrize(("told", "ends"), [(119, False), (121, True)])
def test_the_wait_for_an_agent_that_does_not_exist_goes_on_under_another_operator(told: float, ends: bool) -> None:
    waits = {
        "type": "Succeeded",
        "status": "Unknown",
        "reason": "UnknownAgent",
        "lastTransitionTime": ago(told).isoformat(),
    }
    one = RunSeen(run(created=ago(900), status={"conditions": [waits]}))
    made = plan(one, hello=AgentSeen("hello", None, unusable_since=ago(1), waits_since=ago(1)))
    assert isinstance(made.actions[0], EndUnheld if ends else Wait)


def test_a_run_that_lost_its_pod_is_looked_at_again_at_its_deadline() -> None:
    status = {"attempt": 1, "startTime": ago(20).isoformat()}
    one = pending(spec={"activeDeadlineSeconds": 60}, status=status, used=1)
    assert plan(one).due == ago(-40)


def test_a_run_that_waits_for_an_agent_that_is_deleted_ends_at_once() -> None:
    deleted = agent()
    meta = deleted.metadata.model_copy(update={"deletion_timestamp": NOW})
    one = RunSeen(run())
    made = plan(one, hello=AgentSeen("hello", deleted.model_copy(update={"metadata": meta}), unusable_since=NOW))
    error = RunError(error="AgentDeleted", message="Agent 'hello' is being deleted")
    assert made.actions == (EndUnheld(one, End(RunState.ERROR, error, reason=RunReason.AGENT_DELETED)),)


def test_a_run_of_an_unknown_agent_ends_after_a_bounded_wait() -> None:
    one = RunSeen(run(created=ago(120)))
    made = plan(one, hello=AgentSeen("hello", None, unusable_since=ago(500), waits_since=ago(120)))
    error = RunError(error="UnknownAgent", message="Agent 'hello' doesn't exist")
    assert made.actions == (EndUnheld(one, End(RunState.ERROR, error, reason=RunReason.UNKNOWN_AGENT)),)


def test_waiting_for_a_slot_has_no_deadline() -> None:
    assert plan(RunSeen(run(created=ago(10_000)))).due is None


def test_a_finished_run_is_looked_at_again_when_its_time_is_over() -> None:
    one = RunSeen(run(status={"state": "success", "completionTime": ago(600).isoformat()}))
    assert plan(one).due == NOW + timedelta(seconds=3000)
