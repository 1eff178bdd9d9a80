"""What to do next for one thread, and what it means that a pod refuses a run. Pure; the operator and the embedded
dispatcher follow the same plan."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from runyard_api.errors import (
    BadRequest,
    Draining,
    Early,
    Held,
    Invalid,
    NoSlot,
    NotFound,
    RunyardError,
    Stale,
    Unavailable,
)
from runyard_api.states import CancelAction, RunState, Strategy


@dataclass(frozen=True)
class SeenRun:
    """One run of a thread as observed. `bound`: some attempt of it was given to a pod that isn't known to be lost.
    `not_before`: when it may start at the earliest, None: at once."""

    run_id: str
    sequence: int
    state: RunState
    strategy: Strategy
    bound: bool
    cancel: CancelAction | None = None
    not_before: datetime | None = None


@dataclass(frozen=True)
class ThreadPlan:
    """At most one run to dispatch; runs to stop on their pods; queued runs that end without ever starting; when the
    run whose turn it is may start, if that isn't now."""

    dispatch: str | None = None
    stop: tuple[tuple[str, CancelAction], ...] = ()
    finish: tuple[tuple[str, CancelAction], ...] = ()
    due: datetime | None = None


def plan_thread(runs: Iterable[SeenRun], now: datetime) -> ThreadPlan:
    """Plans all runs of one thread: cancels first, then the lowest unfinished sequence may run.

    A run that may not start yet holds up the ones behind it: the order of a thread is its sequence.
    """
    unfinished = sorted((r for r in runs if not r.state.finished), key=lambda r: r.sequence)
    cancels = {r.run_id: action for r in unfinished if (action := _cancel_of(r, unfinished))}
    stop = tuple((r.run_id, cancels[r.run_id]) for r in unfinished if r.run_id in cancels and r.bound)
    finish = tuple((r.run_id, cancels[r.run_id]) for r in unfinished if r.run_id in cancels and not r.bound)
    waiting = [r for r in unfinished if r.run_id not in dict(finish)]
    head = waiting[0] if waiting else None
    if head is None or head.bound or head.run_id in cancels:
        return ThreadPlan(stop=stop, finish=finish)
    if head.not_before is not None and head.not_before > now:
        return ThreadPlan(stop=stop, finish=finish, due=head.not_before)
    return ThreadPlan(dispatch=head.run_id, stop=stop, finish=finish)


def _cancel_of(run: SeenRun, unfinished: list[SeenRun]) -> CancelAction | None:
    """The run's own cancel, or the one that a newer run's strategy implies; the stronger of both."""
    action = run.cancel
    for newer in unfinished:
        if newer.sequence > run.sequence and newer.strategy in (Strategy.INTERRUPT, Strategy.ROLLBACK):
            action = CancelAction(newer.strategy.value).escalated(action)
    return action


class Refusal(StrEnum):
    """What it means for a run that a pod answered its start with an error."""

    FULL = "full"
    """The pod takes none now; another may, or this one later."""
    EARLY = "early"
    """The thread can't be claimed yet: an earlier run isn't finished, or another writer holds the lease."""
    STALE = "stale"
    """The attempt was used up before: the row says how far they got."""
    GONE = "gone"
    """There is no such run any more."""
    SILENT = "silent"
    """No answer: the pod may be executing the run."""
    WRONG = "wrong"
    """No pod would answer otherwise: the run ends with this error."""
    UNEXPECTED = "unexpected"
    """Says nothing about the run; to be tried again, and told."""


def refusal_of(error: RunyardError) -> Refusal:
    """What the error means."""
    match error:
        case NoSlot() | Draining():
            return Refusal.FULL
        case Early() | Held():
            return Refusal.EARLY
        case Stale():
            return Refusal.STALE
        case NotFound():
            return Refusal.GONE
        case Unavailable():
            return Refusal.SILENT
        case BadRequest() | Invalid():
            return Refusal.WRONG
    return Refusal.UNEXPECTED
