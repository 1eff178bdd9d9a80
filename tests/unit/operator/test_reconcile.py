"""Reconciles as a whole: what they write, that a second look writes nothing, that a crash anywhere changes no end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.builders import NAMESPACE
from tests.unit.operator.stage import Scenario, Stage, on_stage

from runyard_api.conditions import ConditionType, find_condition
from runyard_api.errors import Invalid, Unauthenticated
from runyard_api.states import CancelAction, RunState
from runyard_kube.resources import PODS, RUNS
from runyard_operator.sweep import SILENT_SECONDS
from runyard_operator.trim import trim
from runyard_operator.workqueue import Key
from runyard_operator.world import thread_of


def once(what: Callable[[], None]) -> Callable[[], None]:
    """Something to do the first time only."""
    left = [what]
    return lambda: left.pop()() if left else None


async def one_run(stage: Stage) -> None:
    stage.add_agent()
    stage.add_run()
    await stage.play(60)


async def one_run_by_hand(stage: Stage) -> None:
    stage.add_agent()
    stage.add_run("w1", None)
    await stage.play(60)


async def two_runs(stage: Stage) -> None:
    stage.add_agent()
    stage.add_run("r2", 2)
    stage.add_run("r1", 1)
    await stage.play(60)


async def a_cancel(stage: Stage) -> None:
    stage.seconds = None
    stage.add_agent()
    stage.add_run()
    await stage.play(20)
    stage.change_run("r1", cancel={"action": "Interrupt"})
    await stage.play(60)


async def a_rollback_by_a_newer_run(stage: Stage) -> None:
    stage.seconds = None
    stage.add_agent()
    stage.add_run()
    await stage.play(20)
    for pod in stage.pods.values():
        pod.seconds = 1.0
    stage.add_run("r2", 2, multitaskStrategy="Rollback")
    await stage.play(60)


async def a_cancel_in_the_queue(stage: Stage) -> None:
    stage.add_agent()
    stage.add_run()
    stage.add_run("r2", 2, cancel={"action": "Interrupt"})
    await stage.play(60)


async def a_lost_pod(stage: Stage) -> None:
    stage.seconds = None
    stage.add_agent()
    stage.add_run()
    await stage.play(20)
    stage.seconds = 1.0
    stage.pod_fails()
    await stage.play(60)


async def an_unknown_agent(stage: Stage) -> None:
    stage.add_run()
    await stage.play(60)


async def a_short_life(stage: Stage) -> None:
    stage.add_agent()
    stage.add_run(ttlSecondsAfterFinished=5)
    await stage.play(60)


def state(stage: Stage, name: str = "r1") -> RunState:
    run = stage.run(name)
    assert run is not None
    return run.state


def all_told(stage: Stage) -> None:
    """Objects say what rows say, and no pod waits for an acknowledgement."""
    for pod in stage.lives:
        assert pod.dead or pod.held == {}
    for row in stage.rows.rows.values():
        assert row.status.finished
    for (plural, name), raw in stage.cluster.objects.items():
        if plural == "runs":
            run_id = name if "sequence" in raw["spec"] else raw["metadata"]["uid"]
            assert raw["status"]["state"] == stage.rows.rows[run_id].status, name


SCENARIOS: dict[str, tuple[Scenario, dict[str, RunState | None]]] = {
    "one run": (one_run, {"r1": RunState.SUCCESS}),
    "one run by hand": (one_run_by_hand, {"w1": RunState.SUCCESS}),
    "two runs of a thread": (two_runs, {"r1": RunState.SUCCESS, "r2": RunState.SUCCESS}),
    "a cancel": (a_cancel, {"r1": RunState.INTERRUPTED}),
    "a rollback by a newer run": (a_rollback_by_a_newer_run, {"r1": None, "r2": RunState.SUCCESS}),
    "a cancel in the queue": (a_cancel_in_the_queue, {"r1": RunState.SUCCESS, "r2": RunState.INTERRUPTED}),
    "a lost pod": (a_lost_pod, {"r1": RunState.SUCCESS}),
    "an unknown agent": (an_unknown_agent, {"r1": RunState.ERROR}),
    "a short life": (a_short_life, {"r1": None}),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_point_changes_no_end(name: str) -> None:
    scenario, ends = SCENARIOS[name]
    points = on_stage(scenario).chaos.passed
    assert points > 4
    for point in range(1, points + 1):
        stage = on_stage(scenario, crash_at=point)
        assert stage.crashes == 1, f"no crash at point {point}"
        for run, end in ends.items():
            found = stage.run(run)
            assert (found.state if found else None) is end, f"{run} after a crash at point {point}"
        all_told(stage)
        assert len(set(stage.executed)) == len(stage.executed), f"executed twice after a crash at point {point}"


def test_a_run_takes_two_patches() -> None:
    stage = on_stage(one_run)
    assert stage.run_writes() == ["patch", "patch"]
    assert stage.executed == [("r1", 1)]


def test_a_run_by_hand_takes_one_more() -> None:
    assert on_stage(one_run_by_hand).run_writes("w1") == ["patch", "patch", "patch"]


def test_a_run_by_hand_that_is_deleted_while_its_row_is_made_holds_nobody_up() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        stage.rows.while_creating = once(lambda: stage.cluster.remove(RUNS, "w1"))
        stage.add_run("w1", None)
        await stage.play(1)
        stage.add_run("r2", 2)
        await stage.play(20)

    stage = on_stage(scenario)
    assert stage.rows.rows["uid-w1"].status is RunState.INTERRUPTED
    assert stage.executed == [("r2", 1)]


def test_a_run_by_hand_of_the_same_name_as_one_just_deleted_is_one_of_its_own() -> None:
    def replaced(stage: Stage) -> None:
        stage.cluster.remove(RUNS, "w1")
        stage.add_run("w1", None, uid="uid-second")

    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        stage.rows.while_creating = once(lambda: replaced(stage))
        stage.add_run("w1", None)
        await stage.play(30)

    stage = on_stage(scenario)
    assert stage.executed == [("uid-second", 1)]
    assert stage.rows.rows["uid-w1"].status is RunState.INTERRUPTED
    second = stage.run("w1")
    assert second is not None
    assert (second.metadata.uid, second.state, second.status.sequence) == ("uid-second", RunState.SUCCESS, 2)


def test_a_run_by_hand_that_a_person_edits_meanwhile_is_still_written() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        stage.rows.while_creating = once(lambda: stage.change_run("w1", ttlSecondsAfterFinished=500))
        stage.add_run("w1", None)
        await stage.play(30)

    stage = on_stage(scenario)
    assert stage.executed == [("uid-w1", 1)]
    found = stage.run("w1")
    assert found is not None
    assert found.state is RunState.SUCCESS


def test_the_next_run_of_a_thread_begins_after_the_one_before_ended() -> None:
    stage = on_stage(two_runs)
    assert stage.executed == [("r1", 1), ("r2", 1)]


def test_a_second_look_at_everything_writes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        await one_run(stage)
        before = list(stage.cluster.writes)
        assert stage.world is not None
        for run in stage.world.caches.runs:
            stage.world.run_queue.add(thread_of(run))
        stage.world.agent_queue.add(Key(NAMESPACE, "hello"))
        await stage.play(60)
        assert stage.cluster.writes == before

    on_stage(scenario)


def test_a_run_that_ends_before_it_was_written_down_as_running_takes_one_patch() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        for pod in stage.pods.values():
            pod.seconds, pod.answer_after = 1.0, 3.0
        stage.add_run()
        await stage.play(60)

    stage = on_stage(scenario)
    assert stage.run_writes() == ["patch"]
    found = stage.run()
    assert found is not None
    assert (found.state, found.status.attempt, found.status.pod_name) == (RunState.SUCCESS, 1, next(iter(stage.pods)))


def test_a_request_without_an_answer_is_repeated_at_the_same_pod() -> None:
    async def scenario(stage: Stage) -> None:
        stage.answers = False
        stage.add_agent(replicas={"min": 3, "max": 3})
        stage.add_run()
        await stage.play(20)
        for pod in stage.pods.values():
            pod.answers = True
        await stage.play(60)

    stage = on_stage(scenario)
    assert stage.executed == [("r1", 1)]
    assert state(stage) is RunState.SUCCESS


def test_a_request_that_a_pod_finds_invalid_ends_the_run_with_its_words() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        for pod in stage.pods.values():
            pod.refusal = Invalid("graph_id: string too long")
        stage.add_run()
        await stage.play(10)

    stage = on_stage(scenario)
    found = stage.run()
    assert found is not None
    assert found.status.error is not None
    assert (found.state, found.status.error.error) == (RunState.ERROR, "Invalid")
    assert found.status.error.message == "graph_id: string too long"
    assert stage.rows.rows["r1"].status is RunState.ERROR


def test_a_run_whose_pod_refuses_the_token_waits_tells_it_once_and_goes_on_when_the_pod_takes_it() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        for pod in stage.pods.values():
            pod.refusal = Unauthenticated("this needs the pod's bearer token")
        stage.add_run()
        await stage.play(60)
        told = [event["note"] for (plural, _), event in stage.cluster.objects.items() if plural == "events"]
        assert told == ["its pod doesn't take the operator's token"]
        for pod in stage.pods.values():
            pod.refusal = None
        await stage.play(60)

    assert state(on_stage(scenario)) is RunState.SUCCESS


def test_a_pod_lost_with_an_unanswered_request_moves_the_run_to_another_attempt() -> None:
    async def scenario(stage: Stage) -> None:
        stage.answers = False
        stage.seconds = None
        stage.add_agent()
        stage.add_run()
        await stage.play(20)
        stage.answers, stage.seconds = True, 1.0
        stage.pod_fails()
        await stage.play(60)

    stage = on_stage(scenario)
    assert stage.executed == [("r1", 1), ("r1", 2)]
    assert state(stage) is RunState.SUCCESS


def test_a_run_whose_pods_fail_three_times_ends_in_error() -> None:
    async def scenario(stage: Stage) -> None:
        stage.seconds = None
        stage.add_agent()
        stage.add_run()
        for _ in range(3):
            await stage.play(100)
            stage.pod_fails()
        await stage.play(100)

    stage = on_stage(scenario)
    found = stage.run()
    assert found is not None
    assert found.status.error is not None
    assert (found.state, found.status.failures, found.status.error.error) == (RunState.ERROR, 3, "TooManyFailures")
    assert stage.executed == [("r1", 1), ("r1", 2), ("r1", 3)]


def test_more_threads_than_slots_all_run_and_never_more_at_once_than_there_are_slots() -> None:
    async def scenario(stage: Stage) -> None:
        stage.slots = 2
        stage.add_agent(slots=2)
        for number in range(9):
            stage.add_run(f"r{number}", 1, threadId=_uuid(number))
            stage.rows.add(f"r{number}", _uuid(number), 1, uid=f"uid-r{number}")
        await stage.play(60)

    stage = on_stage(scenario)
    assert [run for run, _ in stage.executed] == [f"r{number}" for number in range(9)]
    assert {state(stage, f"r{number}") for number in range(9)} == {RunState.SUCCESS}


def test_a_deleted_running_run_is_stopped_and_its_object_is_not_written_again() -> None:
    async def scenario(stage: Stage) -> None:
        stage.seconds = None
        stage.add_agent()
        stage.add_run()
        await stage.play(20)
        stage.cluster.remove(RUNS, "r1")
        await stage.play(60)

    stage = on_stage(scenario)
    assert stage.rows.rows["r1"].status is RunState.INTERRUPTED
    assert stage.run_writes() == ["patch"]
    all_told(stage)


@pytest.mark.parametrize("running", [True, False])
def test_a_run_deleted_while_no_operator_was_there_is_cancelled(running: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.seconds = None
        if running:
            stage.add_agent()
        stage.add_run()
        await stage.play(3)
        await stage.stop()
        stage.cluster.remove(RUNS, "r1")
        await stage.play(60)
        assert stage.sweep is not None
        await stage.sweep.round()
        await stage.play(60)

    stage = on_stage(scenario)
    assert stage.rows.rows["r1"].status is RunState.INTERRUPTED
    all_told(stage)


def test_a_thread_on_which_a_run_by_hand_was_refused_goes_on() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(5)
        stage.add_run("w1", None, graphId="nothing")
        await stage.play(5)
        stage.add_run("r1", 1)
        await stage.play(60)

    stage = on_stage(scenario)
    refused = stage.run("w1")
    assert refused is not None
    admitted = find_condition(refused.status.conditions, ConditionType.ADMITTED)
    assert admitted is not None
    assert admitted.reason == "UnknownGraph"
    assert state(stage) is RunState.SUCCESS


@pytest.mark.parametrize("spec", [{}, {"graphId": None}])
def test_a_run_of_an_unknown_agent_says_so_once_and_goes_on_when_the_agent_comes(spec: dict[str, Any]) -> None:
    told: list[tuple[str, str]] = []

    async def scenario(stage: Stage) -> None:
        await stage.play(1)
        assert stage.world is not None
        stage.world.settings = replace(stage.world.settings, unknown_agent_seconds=120)
        stage.add_run("w1", None, **spec)
        await stage.play(30)
        waiting = stage.run("w1")
        assert waiting is not None
        found = find_condition(waiting.status.conditions, ConditionType.SUCCEEDED)
        assert found is not None
        told.append((found.reason, found.message))
        stage.add_agent()
        await stage.play(60)

    stage = on_stage(scenario)
    assert told == [("UnknownAgent", "Agent 'hello' doesn't exist")]
    assert state(stage, "w1") is RunState.SUCCESS
    assert [plural for _, plural, _ in stage.cluster.writes].count("events") == 1


def test_a_run_with_a_place_that_nobody_gave_it_says_why_it_ends() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        stage.add_run()
        del stage.rows.rows["r1"]
        await stage.play(30)

    run = on_stage(scenario).run()
    assert run is not None
    assert run.status.error is not None
    assert (run.state, run.status.error.error) == (RunState.ERROR, "NotStored")


def test_finished_objects_over_the_limit_are_deleted_the_oldest_first_and_their_rows_stay() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(5)
        for number in range(1, 6):
            stage.add_run(f"r{number}", number)
        await stage.play(30)
        assert stage.world is not None
        stage.world.settings = replace(stage.world.settings, max_finished_runs=2)
        trim(stage.world)
        await stage.play(5)
        assert [run.metadata.name for run in stage.world.caches.runs] == ["r4", "r5"]
        assert not stage.world.memory.surplus

    stage = on_stage(scenario)
    assert {row.status for row in stage.rows.rows.values()} == {RunState.SUCCESS}
    assert len(stage.rows.rows) == 5


def test_a_missed_deletion_and_a_missed_change_are_found_by_the_sweep() -> None:
    async def scenario(stage: Stage) -> None:
        await one_run(stage)
        assert stage.sweep is not None
        assert stage.world is not None
        listener, stage.cluster.listener = stage.cluster.listener, None
        stage.cluster.remove(RUNS, "r1")
        stage.add_run("r2", 2)
        stage.cluster.listener = listener
        await stage.sweep.round()
        assert stage.sweep.late["runs"] == 0
        await stage.sweep.round()  # at once, as after trouble with the API: the watch has had no time yet
        assert stage.sweep.late["runs"] == 0
        await stage.play(SILENT_SECONDS)
        await stage.sweep.round()
        assert stage.sweep.late["runs"] == 1
        await stage.play(60)
        assert [run.metadata.name for run in stage.world.caches.runs] == ["r2"]
        assert state(stage, "r2") is RunState.SUCCESS
        await stage.sweep.round()
        assert stage.sweep.late["runs"] == 0

    on_stage(scenario)


def test_a_pod_that_is_gone_without_a_word_is_replaced() -> None:
    async def scenario(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        stage.cluster.remove(PODS, next(iter(stage.pods)))
        await stage.play(10)

    assert len(on_stage(scenario).lives) == 2


def test_a_rollback_reaches_the_pod_as_one() -> None:
    stage = on_stage(a_rollback_by_a_newer_run)
    assert [stop for pod in stage.lives for stop in pod.stopped] == [("r1", CancelAction.ROLLBACK)]


def _uuid(number: int) -> str:
    return f"{number:08d}-1111-4111-8111-111111111111"


GONE_ROWS: dict[str, tuple[bool, bool, RunState | None]] = {
    "its pod still tells the end": (True, False, RunState.SUCCESS),
    "its pod is gone too": (True, True, None),
    "no pod ever had it": (False, False, RunState.ERROR),
}


@pytest.mark.parametrize(("began", "pod_lost", "end"), GONE_ROWS.values(), ids=GONE_ROWS.keys())
def test_a_row_deleted_while_no_operator_was_there_counts_as_ended(
    began: bool, pod_lost: bool, end: RunState | None
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.seconds = 5.0
        stage.add_agent()
        if began:
            stage.add_run(ttlSecondsAfterFinished=20)
            await stage.play(3)
            await stage.stop()
            await asyncio.sleep(10)
        else:
            await stage.play(3)
            await stage.stop()
            stage.add_run(ttlSecondsAfterFinished=20)
        stage.rows.rows.clear()
        if pod_lost:
            stage.pod_fails()
        await stage.play(15)
        assert (found := stage.run()) is None or found.state is end
        assert (found is None) is (end is None)
        await stage.play(30)

    stage = on_stage(scenario)
    assert stage.run() is None
    assert stage.executed == ([("r1", 1)] if began else [])
    all_told(stage)
