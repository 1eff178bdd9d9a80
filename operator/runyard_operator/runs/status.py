"""The status patches of a Run, and the few words around them. Pure; used by `apply`.

A merge patch replaces the whole conditions list, which is safe because the operator alone writes a Run's status.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from runyard_api.conditions import Condition, ConditionType, RunReason, find_condition, set_condition
from runyard_api.crd import Manifest, format_time
from runyard_api.internal import RunError
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_operator.runs.model import End
from runyard_operator.seen import PodView

MESSAGE_LIMIT, WORD_LIMIT = 4096, 256


@dataclass(frozen=True)
class Binding:
    """The pod that executes an attempt, as a Run's status publishes it. `endpoint` is `ip:port`."""

    pod: str
    nonce: str
    endpoint: str
    attempt: int

    @classmethod
    def to(cls, pod: PodView, attempt: int) -> Self:
        return cls(pod.name, pod.nonce, pod.endpoint or "", attempt)


def admitted(run: Run, sequence: int, now: datetime) -> Manifest:
    """A hand-written Run has its place."""
    return {"sequence": sequence, "conditions": _json(_accepted(run, now))}


def refused(run: Run, reason: RunReason, message: str, now: datetime) -> Manifest:
    """A hand-written Run ends without ever getting a place."""
    conditions = set_condition(
        run.status.conditions, ConditionType.ADMITTED, False, reason=reason, message=message, now=now
    )
    conditions = set_condition(conditions, ConditionType.SUCCEEDED, False, reason=reason, message=message, now=now)
    cancelled = reason is RunReason.CANCELLED
    return {
        "state": (RunState.INTERRUPTED if cancelled else RunState.ERROR).value,
        "completionTime": format_time(now),
        "error": None if cancelled else _error(RunError(error=reason.value, message=message)),
        "conditions": _json(conditions),
    }


def running(run: Run, binding: Binding, started: datetime) -> Manifest:
    """A pod executes the run; `started` is when its first attempt began."""
    began = run.status.start_time or started
    conditions = set_condition(
        _accepted(run, began), ConditionType.SUCCEEDED, None, reason=RunReason.RUNNING, now=began
    )
    return {
        "state": RunState.RUNNING.value,
        "podName": binding.pod,
        "podNonce": binding.nonce,
        "endpoint": binding.endpoint,
        "attempt": binding.attempt,
        "startTime": format_time(began),
        "conditions": _json(conditions),
    }


def unbound(run: Run, attempt: int, failures: int, now: datetime) -> Manifest:
    """The run's pod is lost; `attempt` is the one that ended with it."""
    conditions = set_condition(_accepted(run, now), ConditionType.SUCCEEDED, None, reason=RunReason.PENDING, now=now)
    return {
        "state": RunState.PENDING.value,
        "podName": None,
        "podNonce": None,
        "endpoint": None,
        "attempt": attempt,
        "failures": failures,
        "conditions": _json(conditions),
    }


def waiting(run: Run, reason: RunReason, message: str, now: datetime) -> Manifest:
    """The run waits for something that nothing else shows, from now on."""
    before = run.status.conditions if run.sequence is None else _accepted(run, now)
    others = [condition for condition in before if condition.type != ConditionType.SUCCEEDED]
    told = set_condition(others, ConditionType.SUCCEEDED, None, reason=reason, message=message, now=now)
    return {"conditions": _json(told)}


def told(run: Run) -> RunReason | None:
    """The reason that its condition Succeeded gives now."""
    found = find_condition(run.status.conditions, ConditionType.SUCCEEDED)
    return RunReason(found.reason) if found is not None and found.reason in list(RunReason) else None


def ended(run: Run, end: End, *, started: datetime | None, now: datetime) -> Manifest:
    """The run ended now; `started` None means that it never began, so it has no duration."""
    reason = end.reason or _REASONS[end.state]
    message = end.error.message if end.error else ""
    succeeded = end.state is RunState.SUCCESS
    conditions = set_condition(
        _accepted(run, started or now), ConditionType.SUCCEEDED, succeeded, reason=reason, message=message, now=now
    )
    patch: Manifest = {
        "state": end.state.value,
        "completionTime": format_time(now),
        "conditions": _json(conditions),
    }
    if started is not None:
        patch["duration"] = duration(started, now)
    if end.error is not None:
        patch["error"] = _error(end.error)
    return patch


def duration(started: datetime, ended: datetime) -> str:
    """Seconds with one decimal, never negative: `3.2s`."""
    return f"{max(0.0, (ended - started).total_seconds()):.1f}s"


_REASONS = {
    RunState.SUCCESS: RunReason.COMPLETED,
    RunState.ERROR: RunReason.FAILED,
    RunState.TIMEOUT: RunReason.TIMED_OUT,
    RunState.INTERRUPTED: RunReason.CANCELLED,
}


def _accepted(run: Run, now: datetime) -> tuple[Condition, ...]:
    """The run's conditions with Admitted, which the gateway's Runs have from the first patch they get anyway."""
    return set_condition(run.status.conditions, ConditionType.ADMITTED, True, reason=RunReason.ACCEPTED, now=now)


def _error(error: RunError) -> Manifest:
    return {"error": error.error[:WORD_LIMIT], "message": error.message[:MESSAGE_LIMIT]}


def _json(conditions: tuple[Condition, ...]) -> list[Manifest]:
    return [condition.to_json() for condition in conditions]
