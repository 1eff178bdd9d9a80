"""Runs through a real operator, API server, database and runtime; only nodes are played."""

import signal
from datetime import timedelta

import pytest
from tests.integration.operator.harness import Place, until

from runyard_api.conditions import ConditionType, RunReason, find_condition
from runyard_api.crd import format_time
from runyard_api.errors import NotFound as NoRow
from runyard_api.run import Run, cancel_patch
from runyard_api.states import CancelAction, RunState, Strategy
from runyard_kube.errors import NotFound
from runyard_kube.resources import PODS, RUNS
from runyard_operator.world import utc_now

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]


def succeeded(run: Run) -> tuple[str, str]:
    found = find_condition(run.status.conditions, ConditionType.SUCCEEDED)
    assert found is not None
    return found.status.value, found.reason


async def test_a_run_is_given_to_a_pod_and_its_end_is_copied_in_two_patches(place: Place) -> None:
    await place.agent()
    row = await place.create("gated", input={"gate": str(gate := place.gate())})
    running = await place.running(row.run_id)
    assert (running.status.pod_name, running.status.attempt) == ((await place.pods("hello"))[0], 1)
    assert running.status.endpoint is not None
    assert running.status.endpoint.endswith(":8123")
    gate.touch()
    ended = await place.ended(row.run_id)
    assert ended.state is RunState.SUCCESS
    assert succeeded(ended) == ("True", RunReason.COMPLETED)
    assert ended.status.duration is not None
    assert (await place.row(row.run_id)).status is RunState.SUCCESS
    assert await place.patches(row.run_id) == ["pending", "running", "success"]


async def test_a_failing_graph_ends_its_run_in_error_with_the_exception(place: Place) -> None:
    await place.agent()
    ended = await place.ended((await place.create("failing", input={})).run_id)
    assert ended.state is RunState.ERROR
    assert ended.status.error is not None
    assert (ended.status.error.error, ended.status.error.message) == ("ValueError", "no such thing")
    assert succeeded(ended) == ("False", RunReason.FAILED)
    await until(lambda: _has_event(place, ended, "Failed"), "an Event tells of the failure")


async def test_two_runs_of_a_thread_run_one_after_the_other(place: Place) -> None:
    await place.agent()
    first = await place.create("gated", input={"gate": str(gate := place.gate())})
    second = await place.create("echo", thread_id=first.thread_id, input={})
    await place.running(first.run_id)
    assert (await place.until_run(second.run_id, lambda _: True)).state is RunState.PENDING
    gate.touch()
    one, two = await place.ended(first.run_id), await place.ended(second.run_id)
    assert (one.state, two.state) == (RunState.SUCCESS, RunState.SUCCESS)
    assert one.status.completion_time is not None
    assert two.status.completion_time is not None
    assert one.status.completion_time <= two.status.completion_time


async def test_more_runs_than_slots_all_end(place: Place) -> None:
    await place.agent("narrow", slots=2)
    rows = [await place.create("echo", agent_name="narrow", input={}) for _ in range(12)]
    ended = [await place.ended(row.run_id) for row in rows]
    assert {run.state for run in ended} == {RunState.SUCCESS}


async def test_a_cancelled_run_ends_as_interrupted(place: Place) -> None:
    await place.agent()
    row = await place.create("gated", input={"gate": str(place.gate())})
    await place.running(row.run_id)
    await place.kube.patch(RUNS, place.namespace, row.run_id, cancel_patch(CancelAction.INTERRUPT, "enough"))
    ended = await place.ended(row.run_id)
    assert ended.state is RunState.INTERRUPTED
    assert succeeded(ended) == ("False", RunReason.CANCELLED)


async def test_a_run_cancelled_in_the_queue_ends_without_a_pod(place: Place) -> None:
    await place.agent()
    first = await place.create("gated", input={"gate": str(gate := place.gate())})
    second = await place.create("echo", thread_id=first.thread_id, input={})
    await place.running(first.run_id)
    await place.kube.patch(RUNS, place.namespace, second.run_id, cancel_patch(CancelAction.INTERRUPT))
    ended = await place.ended(second.run_id)
    assert (ended.state, ended.status.attempt) == (RunState.INTERRUPTED, None)
    assert (await place.row(second.run_id)).status is RunState.INTERRUPTED
    gate.touch()
    assert (await place.ended(first.run_id)).state is RunState.SUCCESS


async def test_a_newer_run_with_rollback_removes_the_one_before(place: Place) -> None:
    await place.agent()
    first = await place.create("gated", input={"gate": str(place.gate())})
    await place.running(first.run_id)
    second = await place.create("echo", thread_id=first.thread_id, strategy=Strategy.ROLLBACK, input={})
    assert (await place.ended(second.run_id)).state is RunState.SUCCESS
    await until(lambda: _object_gone(place, first.run_id), "the object of the rolled-back run is gone")
    with pytest.raises(NoRow):
        await place.row(first.run_id)


async def test_deleting_a_running_run_cancels_it(place: Place) -> None:
    await place.agent()
    row = await place.create("gated", input={"gate": str(place.gate())})
    await place.running(row.run_id)
    await place.kube.delete(RUNS, place.namespace, row.run_id)
    await until(lambda: _row_is(place, row.run_id, RunState.INTERRUPTED), "the row says interrupted")
    again = await place.create("echo", thread_id=row.thread_id, input={})
    assert (await place.ended(again.run_id)).state is RunState.SUCCESS


async def test_a_run_written_by_hand_runs(place: Place) -> None:
    await place.agent()
    made = await place.apply_run("by-hand", graphId="echo", payload={"input": {"log": ["from kubectl"]}})
    ended = await place.ended("by-hand")
    assert (ended.state, ended.status.sequence) == (RunState.SUCCESS, 1)
    admitted = find_condition(ended.status.conditions, ConditionType.ADMITTED)
    assert admitted is not None
    assert admitted.status.value == "True"
    row = await place.row(made["metadata"]["uid"])
    assert row.result == {"log": ["from kubectl", "said"]}
    assert await place.patches("by-hand") == ["pending", "pending", "running", "success"]


async def test_a_run_written_by_hand_that_names_no_graph_of_several_is_refused(place: Place) -> None:
    await place.agent()
    await place.apply_run("which")
    ended = await place.ended("which")
    assert ended.state is RunState.ERROR
    admitted = find_condition(ended.status.conditions, ConditionType.ADMITTED)
    assert admitted is not None
    assert admitted.reason == RunReason.UNKNOWN_GRAPH
    assert "echo, failing, gated" in admitted.message


async def test_a_payload_over_16_kib_is_refused_in_plain_words(place: Place) -> None:
    await place.agent()
    await place.apply_run("large", graphId="echo", payload={"input": {"log": ["x" * 20_000]}})
    ended = await place.ended("large")
    assert ended.status.error is not None
    assert "at most 16384" in ended.status.error.message


async def test_a_run_of_an_agent_that_does_not_exist_ends_after_a_bounded_wait(place: Place) -> None:
    row = await place.create(agent_name="nobody")
    ended = await place.ended(row.run_id)
    assert ended.state is RunState.ERROR
    assert ended.status.error is not None
    assert ended.status.error.message == "Agent 'nobody' doesn't exist"
    assert succeeded(ended) == ("False", RunReason.UNKNOWN_AGENT)
    assert (await place.row(row.run_id)).status is RunState.ERROR


async def test_a_run_whose_pod_is_lost_goes_on_as_attempt_two_on_another(place: Place) -> None:
    await place.agent("fragile")
    row = await place.create("gated", agent_name="fragile", input={"gate": str(gate := place.gate())})
    first = await place.running(row.run_id)
    await place.kubelet.fail(str(first.status.pod_name))
    second = await place.until_run(row.run_id, lambda run: run.status.attempt == 2)
    assert (second.state, second.status.failures) == (RunState.RUNNING, 1)
    assert second.status.pod_name != first.status.pod_name
    gate.touch()
    ended = await place.ended(row.run_id)
    assert (ended.state, ended.status.attempt) == (RunState.SUCCESS, 2)
    assert (await place.row(row.run_id)).result == {"gate": str(gate), "log": ["said", "through"]}


async def test_deleting_a_pod_moves_its_runs_without_counting_a_failure(place: Place) -> None:
    await place.agent("moving")
    row = await place.create("gated", agent_name="moving", input={"gate": str(gate := place.gate())})
    first = await place.running(row.run_id)
    await place.kube.delete(PODS, place.namespace, str(first.status.pod_name), grace_seconds=0)
    second = await place.until_run(row.run_id, lambda run: run.status.attempt == 2)
    assert not second.status.failures
    gate.touch()
    assert (await place.ended(row.run_id)).state is RunState.SUCCESS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_an_operator_restarted_in_the_middle_loses_nothing(place: Place, number: signal.Signals) -> None:
    await place.agent()
    row = await place.create("gated", input={"gate": str(gate := place.gate())})
    waiting = await place.create("echo", thread_id=row.thread_id, input={})
    before = await place.running(row.run_id)
    await place.operator.stop(number)
    gate.touch()
    await until(lambda: _row_is(place, row.run_id, RunState.SUCCESS), "the pod ends the run by itself")
    await place.operator.start()
    ended = await place.ended(row.run_id)
    assert (ended.state, ended.status.attempt) == (RunState.SUCCESS, 1)
    assert ended.status.pod_name == before.status.pod_name
    assert (await place.ended(waiting.run_id)).state is RunState.SUCCESS


async def test_a_finished_object_goes_by_its_time_to_live_and_its_row_stays(place: Place) -> None:
    await place.agent("brief", runDefaults={"ttlSecondsAfterFinished": 1})
    row = await place.create("echo", agent_name="brief", input={})
    await until(lambda: _object_gone(place, row.run_id), "the object is gone")
    assert (await place.row(row.run_id)).status is RunState.SUCCESS


async def _row_is(place: Place, run_id: str, state: RunState) -> bool:
    return (await place.row(run_id)).status is state


async def _object_gone(place: Place, name: str) -> bool:
    try:
        await place.kube.get(RUNS, place.namespace, name)
    except NotFound:
        return True
    return False


async def _has_event(place: Place, run: Run, reason: str) -> bool:
    return reason in await place.events(run.metadata.name)


async def test_a_run_that_may_start_later_waits_and_one_past_its_deadline_ends_as_timeout(place: Place) -> None:
    await place.agent()
    at = utc_now() + timedelta(seconds=2)
    made = await place.apply_run("later", graphId="echo", notBefore=format_time(at), payload={"input": {}})
    late = await place.apply_run(
        "too-long", graphId="gated", activeDeadlineSeconds=1, payload={"input": {"gate": str(place.gate())}}
    )
    ended = await place.ended(late["metadata"]["name"])
    assert (ended.state, succeeded(ended)) == (RunState.TIMEOUT, ("False", RunReason.TIMED_OUT))
    assert ended.status.error is not None
    assert ended.status.error.error == "DeadlineExceeded"
    started = await place.ended(made["metadata"]["name"])
    assert started.state is RunState.SUCCESS
    assert started.status.start_time is not None
    assert started.status.start_time >= at.replace(microsecond=0)
