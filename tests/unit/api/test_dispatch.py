"""What one thread does next, case by case."""

from datetime import UTC, datetime, timedelta

import pytest

from runyard_api.dispatch import Refusal, SeenRun, ThreadPlan, plan_thread, refusal_of
from runyard_api.errors import (
    BadRequest,
    Conflict,
    Draining,
    Early,
    Held,
    Invalid,
    NoSlot,
    NotFound,
    RunyardError,
    Stale,
    Unauthenticated,
    Unavailable,
)
from runyard_api.states import CancelAction, RunState, Strategy

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=90)
INTERRUPT, ROLLBACK = CancelAction.INTERRUPT, CancelAction.ROLLBACK


def run(
    sequence: int,
    *,
    bound: bool = False,
    state: RunState | None = None,
    strategy: Strategy = Strategy.ENQUEUE,
    cancel: CancelAction | None = None,
    not_before: datetime | None = None,
) -> SeenRun:
    chosen = state or (RunState.RUNNING if bound else RunState.PENDING)
    return SeenRun(f"r{sequence}", sequence, chosen, strategy, bound, cancel, not_before)


CASES = {
    "a thread without runs has nothing to do": ([], ThreadPlan()),
    "a first run is dispatched": ([run(1)], ThreadPlan(dispatch="r1")),
    "a run on a pod is left alone": ([run(1, bound=True)], ThreadPlan()),
    "the second waits for the first": ([run(2), run(1, bound=True)], ThreadPlan()),
    "the lowest sequence goes first whatever the order seen": ([run(3), run(2)], ThreadPlan(dispatch="r2")),
    "a finished run doesn't hold up the next": ([run(1, state=RunState.SUCCESS), run(2)], ThreadPlan(dispatch="r2")),
    "a lost run, running but bound nowhere, is dispatched again": (
        [run(1, state=RunState.RUNNING), run(2)],
        ThreadPlan(dispatch="r1"),
    ),
    "a cancelled run on a pod is stopped and its successor waits": (
        [run(1, bound=True, cancel=INTERRUPT), run(2)],
        ThreadPlan(stop=(("r1", INTERRUPT),)),
    ),
    "a cancelled run in the queue ends at once and the next may start": (
        [run(1, cancel=INTERRUPT), run(2)],
        ThreadPlan(finish=(("r1", INTERRUPT),), dispatch="r2"),
    ),
    "a cancel of a queued run behind a running one ends it without touching the running one": (
        [run(1, bound=True), run(2, cancel=ROLLBACK)],
        ThreadPlan(finish=(("r2", ROLLBACK),)),
    ),
    "a new run with interrupt stops the running one and waits for its end": (
        [run(1, bound=True), run(2, strategy=Strategy.INTERRUPT)],
        ThreadPlan(stop=(("r1", INTERRUPT),)),
    ),
    "a new run with rollback ends the queued ones and stops the running one by rollback": (
        [run(1, bound=True), run(2), run(3, strategy=Strategy.ROLLBACK)],
        ThreadPlan(stop=(("r1", ROLLBACK),), finish=(("r2", ROLLBACK),)),
    ),
    "a rollback that was asked for isn't weakened by a newer interrupt": (
        [run(1, bound=True, cancel=ROLLBACK), run(2, strategy=Strategy.INTERRUPT)],
        ThreadPlan(stop=(("r1", ROLLBACK),)),
    ),
    "a newer run's strategy doesn't touch the runs after it": (
        [run(1, strategy=Strategy.INTERRUPT), run(2)],
        ThreadPlan(dispatch="r1"),
    ),
    "a run that may not start yet waits for its time, and the next behind it": (
        [run(1, not_before=LATER), run(2)],
        ThreadPlan(due=LATER),
    ),
    "a run whose time has come is dispatched": ([run(1, not_before=NOW)], ThreadPlan(dispatch="r1")),
    "a run behind one that runs has no time to wait for": (
        [run(1, bound=True), run(2, not_before=LATER)],
        ThreadPlan(),
    ),
    "a cancelled run ends before its time": (
        [run(1, not_before=LATER, cancel=INTERRUPT), run(2)],
        ThreadPlan(finish=(("r1", INTERRUPT),), dispatch="r2"),
    ),
    "a finished run's strategy cancels nobody": (
        [run(1, bound=True), run(2, strategy=Strategy.INTERRUPT, state=RunState.INTERRUPTED)],
        ThreadPlan(),
    ),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan_thread(case: str) -> None:
    runs, want = CASES[case]
    assert plan_thread(runs, NOW) == want


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (NoSlot("x"), Refusal.FULL),
        (Draining("x"), Refusal.FULL),
        (Early("x"), Refusal.EARLY),
        (Held("x"), Refusal.EARLY),
        (Stale("x"), Refusal.STALE),
        (NotFound("x"), Refusal.GONE),
        (Unavailable("x"), Refusal.SILENT),
        (BadRequest("x"), Refusal.WRONG),
        (Invalid("x"), Refusal.WRONG),
        (Unauthenticated("x"), Refusal.UNEXPECTED),
        (Conflict("x"), Refusal.UNEXPECTED),
        (RunyardError("x"), Refusal.UNEXPECTED),
    ],
)
def test_what_a_refusal_means(error: RunyardError, meaning: Refusal) -> None:
    assert refusal_of(error) is meaning
