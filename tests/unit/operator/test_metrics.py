"""What the operator counts: from status patches, the World at a scrape, and through whole plays."""

import asyncio

from tests.unit.operator.builders import ago, run
from tests.unit.operator.stage import Stage, on_stage

from runyard_api.crd import Manifest
from runyard_operator.metrics import AgentNow, Metrics, Now, Present, QueueNow
from runyard_operator.present import now_of
from runyard_operator.probes import Health, serve


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """A sample of the operator's; 0 while there is none."""
    return metrics.registry.get_sample_value(f"runyard_operator_{name}", labels) or 0.0


def succeeded(status: str, reason: str) -> list[Manifest]:
    return [{"type": "Succeeded", "status": status, "reason": reason}]


RUNNING = {"state": "running", "podName": "p", "attempt": 1, "conditions": succeeded("Unknown", "Running")}


def test_a_run_that_starts_counts_as_an_attempt_and_once_however_often_it_is_written() -> None:
    metrics = Metrics()
    metrics.patched(run(), RUNNING)
    metrics.patched(run(status={"state": "running", "podName": "p", "attempt": 1}), RUNNING)
    assert value(metrics, "attempts_total", agent="hello") == 1
    assert value(metrics, "run_transitions_total", agent="hello", state="running", reason="Running") == 1


def test_an_end_counts_with_its_reason_also_when_one_patch_says_where_it_ran() -> None:
    metrics = Metrics()
    metrics.patched(run(), RUNNING | {"state": "error", "conditions": succeeded("False", "Failed")})
    assert value(metrics, "attempts_total", agent="hello") == 1
    assert value(metrics, "run_transitions_total", agent="hello", state="error", reason="Failed") == 1


def test_a_loss_counts_by_whether_the_pod_failed_or_was_taken_away() -> None:
    metrics = Metrics()
    bound = run(status={"state": "running", "podName": "p", "attempt": 1})
    lost: Manifest = {"state": "pending", "podName": None, "attempt": 1, "conditions": succeeded("Unknown", "Pending")}
    metrics.patched(bound, lost | {"failures": 1})
    metrics.patched(bound, lost | {"failures": 0})
    assert value(metrics, "losses_total", agent="hello", cause="failure") == 1
    assert value(metrics, "losses_total", agent="hello", cause="disruption") == 1
    assert value(metrics, "attempts_total", agent="hello") == 0


def test_a_patch_without_a_state_is_no_transition() -> None:
    metrics = Metrics()
    metrics.patched(run(sequence=None), {"sequence": 3, "conditions": []})
    assert b"run_transitions_total{" not in metrics.text()


def test_the_wait_of_a_run_is_from_when_it_was_seen_to_when_a_pod_took_it() -> None:
    metrics = Metrics()
    metrics.dispatched("hello", ago(3), ago(1))
    assert value(metrics, "dispatch_seconds_sum", agent="hello") == 2
    assert value(metrics, "dispatch_seconds_bucket", agent="hello", le="2.5") == 1


def test_what_a_scrape_reads_is_the_present() -> None:
    metrics = Metrics()
    queues = (QueueNow("runs", 3, 1.5),)
    now = Now(True, 0.25, queues, (AgentNow("hello", slots=10, busy=4, waiting=2),), {"running": 4})
    metrics.registry.register(Present(lambda: now))
    assert value(metrics, "leader") == 1
    assert value(metrics, "loop_lag_seconds") == 0.25
    assert value(metrics, "queue_depth", queue="runs") == 3
    assert value(metrics, "queue_age_seconds", queue="runs") == 1.5
    assert value(metrics, "runs", state="running") == 4
    of_agent = ("slots", "slots_busy", "waiting")
    assert {name: value(metrics, name, agent="hello") for name in of_agent} == {
        "slots": 10,
        "slots_busy": 4,
        "waiting": 2,
    }


def test_a_whole_play_is_told_and_names_no_run() -> None:
    seen: list[tuple[Metrics, Now]] = []

    async def scene(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(10)
        stage.add_run("r1", 1)
        stage.add_run("r2", 2)
        await stage.play(30)
        assert stage.world is not None
        seen.append((stage.world.metrics, now_of(stage.world, 0.0)))

    on_stage(scene)
    [(metrics, now)] = seen
    assert value(metrics, "attempts_total", agent="hello") == 2
    assert value(metrics, "run_transitions_total", agent="hello", state="success", reason="Completed") == 2
    assert value(metrics, "dispatch_seconds_count", agent="hello") == 2
    assert now.runs["success"] == 2
    assert now.agents == (AgentNow("hello", slots=10, busy=0, waiting=0),)
    assert b"r1" not in metrics.text()


def test_they_are_served_beside_the_probes() -> None:
    metrics = Metrics()
    metrics.requested("get", 200)

    async def asked() -> str:
        server = await serve(Health(lambda: [], lambda: []), 0, "127.0.0.1", metrics=metrics.text)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = (await reader.read()).decode()
            writer.close()
        return answer

    answer = asyncio.run(asked())
    assert answer.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert 'runyard_operator_api_requests_total{code="200",verb="get"} 1.0' in answer
