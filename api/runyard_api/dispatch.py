"""What to do next for one thread. Pure; the operator and the embedded dispatcher follow the same plan."""

from collections.abc import Iterable
from dataclasses import dataclass

from runyard_api.states import CancelAction, RunState, Strategy


@dataclass(frozen=True)
class SeenRun:
    """One run of a thread as observed. `bound`: some attempt of it was given to a pod that isn't known to be lost."""

    run_id: str
    sequence: int
    state: RunState
    strategy: Strategy
    bound: bool
    cancel: CancelAction | None = None


@dataclass(frozen=True)
class ThreadPlan:
    """At most one run to dispatch; runs to stop on their pods; queued runs that end without ever starting."""

    dispatch: str | None = None
    stop: tuple[tuple[str, CancelAction], ...] = ()
    finish: tuple[tuple[str, CancelAction], ...] = ()


def plan_thread(runs: Iterable[SeenRun]) -> ThreadPlan:
    """Plans all runs of one thread: cancels first, then the lowest unfinished sequence may run."""
    unfinished = sorted((r for r in runs if not r.state.finished), key=lambda r: r.sequence)
    cancels = {r.run_id: action for r in unfinished if (action := _cancel_of(r, unfinished))}
    stop = tuple((r.run_id, cancels[r.run_id]) for r in unfinished if r.run_id in cancels and r.bound)
    finish = tuple((r.run_id, cancels[r.run_id]) for r in unfinished if r.run_id in cancels and not r.bound)
    waiting = [r for r in unfinished if r.run_id not in dict(finish)]
    head = waiting[0] if waiting else None
    dispatch = head.run_id if head and not head.bound and head.run_id not in cancels else None
    return ThreadPlan(dispatch=dispatch, stop=stop, finish=finish)


def _cancel_of(run: SeenRun, unfinished: list[SeenRun]) -> CancelAction | None:
    """The run's own cancel, or the one that a newer run's strategy implies; the stronger of both."""
    action = run.cancel
    for newer in unfinished:
        if newer.sequence > run.sequence and newer.strategy in (Strategy.INTERRUPT, Strategy.ROLLBACK):
            action = CancelAction(newer.strategy.value).escalated(action)
    return action
