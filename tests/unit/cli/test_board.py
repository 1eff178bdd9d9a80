"""The board: what the embedded dispatcher concludes from submits, cancels and what the runtime says."""

from datetime import UTC, datetime

from runyard_api.dispatch import ThreadPlan
from runyard_api.internal import RunError, RunHeld
from runyard_api.states import CancelAction, RunState, Strategy
from runyard_cli.embedded.board import Board, Entry

NOW = datetime(2026, 3, 1, tzinfo=UTC)
THREAD = "t"


def entry(run_id: str, sequence: int, strategy: Strategy = Strategy.ENQUEUE, attempt: int = 0) -> Entry:
    return Entry(run_id, THREAD, "graph", sequence, strategy, attempt)


def held(run_id: str, state: RunState = RunState.RUNNING, attempt: int = 1) -> RunHeld:
    return RunHeld(run_id=run_id, thread_id=THREAD, attempt=attempt, state=state)


def board(*entries: Entry) -> Board:
    made = Board()
    for one in entries:
        assert made.add(one)
    return made


def test_the_lowest_sequence_is_dispatched_whatever_the_order_of_arrival() -> None:
    assert board(entry("second", 2), entry("first", 1)).plan(THREAD, NOW) == ThreadPlan(dispatch="first")


def test_a_run_submitted_twice_is_on_the_board_once() -> None:
    one = board(entry("a", 1))
    assert not one.add(entry("a", 1))
    assert one.threads() == [THREAD]


def test_nothing_is_dispatched_while_a_run_of_the_thread_is_with_the_runtime() -> None:
    one = board(entry("a", 1), entry("b", 2))
    one.bind("a")
    assert one.plan(THREAD, NOW) == ThreadPlan()


def test_the_end_of_a_run_lets_the_next_one_of_its_thread_go() -> None:
    one = board(entry("a", 1), entry("b", 2))
    one.bind("a")
    one.heard(held("a"))
    ended = one.heard(held("a", RunState.SUCCESS))
    assert ended is not None
    assert ended.state is RunState.SUCCESS
    assert one.plan(THREAD, NOW) == ThreadPlan(dispatch="b")


def test_a_thread_without_unfinished_runs_is_forgotten() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.heard(held("a", RunState.SUCCESS))
    assert one.threads() == []
    assert one.plan(THREAD, NOW) == ThreadPlan()


def test_attempts_go_on_from_what_the_database_has_seen() -> None:
    one = board(entry("a", 1, attempt=2))
    assert one.bind("a") == 3


def test_a_refused_attempt_keeps_its_number() -> None:
    one = board(entry("a", 1))
    assert one.bind("a") == 1
    one.unbind("a")
    assert one.bind("a") == 1


def test_a_stale_refusal_raises_the_number() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.unbind("a")
    one.set_attempt("a", 4)
    assert one.bind("a") == 5


def test_word_of_an_older_attempt_changes_nothing() -> None:
    one = board(entry("a", 1, attempt=3))
    assert one.heard(held("a", RunState.ERROR, attempt=2)) is None
    assert one.plan(THREAD, NOW) == ThreadPlan(dispatch="a")


def test_the_same_word_twice_is_news_once() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    assert one.heard(held("a")) is not None
    assert one.heard(held("a")) is None


def test_word_of_a_run_that_is_not_on_the_board_changes_nothing() -> None:
    assert board().heard(held("gone", RunState.SUCCESS)) is None


def test_a_late_answer_to_the_start_does_not_bring_back_a_run_that_has_ended() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.heard(held("a", RunState.SUCCESS))
    assert one.heard(held("a", RunState.RUNNING)) is None
    assert one.get("a") is None


def test_an_error_is_kept_with_the_end() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    failed = held("a", RunState.ERROR).model_copy(update={"error": RunError(error="ValueError", message="no")})
    ended = one.heard(failed)
    assert ended is not None
    assert ended.error == RunError(error="ValueError", message="no")


def test_a_cancel_of_a_waiting_run_finishes_it_and_lets_the_next_go() -> None:
    one = board(entry("a", 1), entry("b", 2))
    one.cancel("a", CancelAction.INTERRUPT, "")
    assert one.plan(THREAD, NOW) == ThreadPlan(finish=(("a", CancelAction.INTERRUPT),), dispatch="b")


def test_a_cancel_of_a_running_run_is_told_once() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.cancel("a", CancelAction.INTERRUPT, "stop button")
    assert one.plan(THREAD, NOW).stop == (("a", CancelAction.INTERRUPT),)
    one.stopping("a", CancelAction.INTERRUPT)
    assert one.plan(THREAD, NOW).stop == ()


def test_a_rollback_after_an_interrupt_is_told_too_and_never_weakened() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.cancel("a", CancelAction.INTERRUPT, "")
    one.stopping("a", CancelAction.INTERRUPT)
    one.cancel("a", CancelAction.ROLLBACK, "")
    one.cancel("a", CancelAction.INTERRUPT, "")
    assert one.plan(THREAD, NOW).stop == (("a", CancelAction.ROLLBACK),)


def test_a_cancel_of_a_run_that_has_ended_is_none() -> None:
    assert board().cancel("gone", CancelAction.INTERRUPT, "") is None


def test_a_newer_run_with_interrupt_stops_the_older_one() -> None:
    one = board(entry("a", 1), entry("b", 2, Strategy.INTERRUPT))
    one.bind("a")
    assert one.plan(THREAD, NOW) == ThreadPlan(stop=(("a", CancelAction.INTERRUPT),))


def test_a_run_that_is_missing_from_the_snapshot_is_lost_and_tried_again() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.heard(held("a"))
    assert [lost.run_id for lost in one.lost([])] == ["a"]
    assert one.plan(THREAD, NOW) == ThreadPlan(dispatch="a")
    assert one.bind("a") == 2


def test_a_run_that_is_in_the_snapshot_is_not_lost() -> None:
    one = board(entry("a", 1))
    one.bind("a")
    one.heard(held("a"))
    assert one.lost(["a"]) == []


def test_bound_runs_are_counted_until_they_end() -> None:
    one = board(entry("a", 1))
    assert one.bound == 0
    one.bind("a")
    assert one.bound == 1
    one.heard(held("a", RunState.SUCCESS))
    assert one.bound == 0
