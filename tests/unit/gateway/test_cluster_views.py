"""Run and Agent objects as the gateway sees them, the Run it makes, and who is told of changes."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.store_rows import run_row

from runyard_api.crd import Manifest
from runyard_api.errors import Invalid
from runyard_api.run import Run
from runyard_api.states import CancelAction, RunState, Strategy
from runyard_gateway.cluster.kube_runs import manifest_of
from runyard_gateway.cluster.views import ClusterRun, PodAddress, by_age, cluster_agent, cluster_run
from runyard_gateway.cluster.watchers import Watchers
from runyard_gateway.ports import RunStatus

THREAD, RUN = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e", "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6f"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run_manifest(status: dict[str, Any], **spec: Any) -> Manifest:
    head = {"name": RUN, "namespace": "agents", "uid": "u-1", "resourceVersion": "1", "generation": 1}
    made = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "runyard.dev/v1alpha1",
        "kind": "Run",
        "metadata": {**head, **made},
        "spec": {"agentName": "hello", "threadId": THREAD, "sequence": 1, **spec},
        "status": status,
    }


HELD = {"attempt": 2, "podName": "hello-1", "podNonce": "n", "endpoint": "10.0.0.1:8123"}
POD = PodAddress("hello-1", "n", "10.0.0.1:8123")
RUNS: dict[str, tuple[dict[str, Any], ClusterRun]] = {
    "pending": ({"state": "pending"}, ClusterRun(RUN, RUN, RunState.PENDING, 0, None, None)),
    "running on a pod": ({"state": "running", **HELD}, ClusterRun(RUN, RUN, RunState.RUNNING, 2, POD, None)),
    "finished, the pod is of no interest": (
        {"state": "success", **HELD},
        ClusterRun(RUN, RUN, RunState.SUCCESS, 2, None, None),
    ),
    "without a nonce there is no token": (
        {"state": "running", **{**HELD, "podNonce": None}},
        ClusterRun(RUN, RUN, RunState.RUNNING, 2, None, None),
    ),
}


@pytest.mark.parametrize(("status", "want"), RUNS.values(), ids=RUNS.keys())
def test_seen_run(status: dict[str, Any], want: ClusterRun) -> None:
    assert cluster_run(run_manifest(status)) == want


def test_a_failed_run_has_its_error() -> None:
    seen = cluster_run(run_manifest({"state": "error", "error": {"error": "ValueError", "message": "no"}}))
    assert seen.error is not None
    assert (seen.error.error, seen.error.message) == ("ValueError", "no")


CANCELS: dict[str, tuple[str | None, CancelAction | None, bool]] = {
    "nothing was asked": (None, None, False),
    "the object doesn't know": (None, CancelAction.INTERRUPT, True),
    "it knows": ("Interrupt", CancelAction.INTERRUPT, False),
    "a stronger one": ("Interrupt", CancelAction.ROLLBACK, True),
    "a weaker one": ("Rollback", CancelAction.INTERRUPT, False),
}


@pytest.mark.parametrize(("asked", "action", "want"), CANCELS.values(), ids=CANCELS.keys())
def test_a_cancel_that_only_the_row_knows(asked: str | None, action: CancelAction | None, want: bool) -> None:
    spec = {"cancel": {"action": asked}} if asked else {}
    assert cluster_run(run_manifest({"state": "running"}, **spec)).lacks(action) is want
    assert cluster_run(run_manifest({"state": "success"}, **spec)).lacks(action) is False


def test_a_hand_written_run_is_known_by_its_uid() -> None:
    manifest = run_manifest({"state": "pending"})
    del manifest["spec"]["sequence"]
    assert (cluster_run(manifest).name, cluster_run(manifest).run_id) == (RUN, "u-1")


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(Invalid):
        cluster_run({"metadata": {"name": "x"}})


def agent_manifest(name: str, made: str, status: dict[str, Any], graphs: dict[str, str] | None = None) -> Manifest:
    head = {"name": name, "namespace": "agents", "uid": name, "resourceVersion": "1", "generation": 1}
    return {
        "apiVersion": "runyard.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {**head, "creationTimestamp": made},
        "spec": {"image": "i", **({"graphs": graphs} if graphs else {})},
        "status": status,
    }


def condition(status: str, reason: str, message: str) -> dict[str, Any]:
    made = {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    return {"type": "Ready", "status": status, "reason": reason, "message": message, **made}


def test_seen_agent() -> None:
    pods = [
        {"name": "a", "nonce": "n", "endpoint": "10.0.0.1:8123", "ready": True},
        {"name": "b", "nonce": "n", "endpoint": "10.0.0.2:8123", "ready": True, "draining": True},
        {"name": "c", "nonce": "n", "ready": True},
        {"name": "d", "nonce": "n", "endpoint": "10.0.0.3:8123", "ready": False},
    ]
    status = {"graphs": ["b", "a"], "pods": pods, "conditions": [condition("True", "Available", "ok")]}
    agent = cluster_agent(agent_manifest("x", "2026-01-01T00:00:00Z", status))
    assert (agent.view.graphs, agent.view.ready, agent.view.reason) == (("a", "b"), True, "")
    assert agent.view.created_at == NOW
    assert [pod.pod for pod in agent.pods] == ["a"]


def test_an_agent_that_has_discovered_nothing_shows_the_graphs_of_its_spec_and_why_it_isnt_ready() -> None:
    status = {"conditions": [condition("False", "ImportFailed", "No module named x")]}
    agent = cluster_agent(agent_manifest("x", "2026-01-01T00:00:00Z", status, {"g": "./a.py:g"}))
    assert (agent.view.graphs, agent.view.ready) == (("g",), False)
    assert agent.view.reason == "ImportFailed: No module named x"


def test_agents_are_ordered_by_age_then_name() -> None:
    agents = [
        cluster_agent(agent_manifest(name, made, {}))
        for name, made in (("c", "2026-01-02T00:00:00Z"), ("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z"))
    ]
    assert [view.name for view in by_age(agents)] == ["a", "b", "c"]


ROW = run_row(
    run_id=RUN,
    thread_id=THREAD,
    user_id="alice",
    assistant_id="0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d60",
    graph_id="chat",
    agent_name="hello",
    sequence=3,
    payload={"stream_mode": ["values", "messages-tuple", "messages"], "durability": "sync", "input": {"secret": 1}},
    multitask_strategy=Strategy.INTERRUPT,
    on_disconnect="cancel",
)


def test_the_object_of_a_stored_run_carries_no_user_data() -> None:
    manifest = manifest_of(ROW, "agents")
    assert "secret" not in str(manifest)
    run = Run.from_manifest({**manifest, "metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "1"}})
    assert (run.run_id, run.thread_id, run.user_id, run.sequence, run.strategy) == (
        RUN,
        THREAD,
        "alice",
        3,
        "interrupt",
    )
    assert (run.spec.on_disconnect, run.spec.durability, run.cancel_action) == ("Cancel", "Sync", None)


def test_a_run_that_was_cancelled_before_it_had_an_object_gets_one_with_the_cancel() -> None:
    manifest = manifest_of(replace(ROW, cancel_action=CancelAction.ROLLBACK, cancel_reason="why"), "agents")
    assert manifest["spec"]["cancel"] == {"action": "Rollback", "reason": "why"}


def as_status(run: ClusterRun) -> RunStatus:
    return RunStatus(run.state, run.attempt)


def seen(state: RunState, attempt: int = 1, run_id: str = RUN) -> ClusterRun:
    return ClusterRun(run_id, run_id, state, attempt, None, None)


async def test_a_watcher_gets_the_present_status_then_changes_until_the_end() -> None:
    watchers = Watchers()
    watchers.on_change(None, seen(RunState.PENDING, 0))
    with watchers.watching(RUN) as watcher:
        statuses = watcher.statuses(as_status)
        assert (await anext(statuses)).state is RunState.PENDING
        watchers.on_change(None, seen(RunState.RUNNING, run_id="another"))
        watchers.on_change(seen(RunState.PENDING, 0), seen(RunState.RUNNING))
        assert (await anext(statuses)).state is RunState.RUNNING
        watchers.on_change(seen(RunState.RUNNING), seen(RunState.SUCCESS))
        assert [s.state async for s in statuses] == [RunState.SUCCESS]


async def test_a_watcher_of_an_unknown_run_sees_pending_until_it_appears() -> None:
    watchers = Watchers()
    with watchers.watching(RUN) as watcher:
        statuses = watcher.statuses(as_status)
        assert await anext(statuses) == RunStatus(RunState.PENDING)
        watchers.on_change(None, seen(RunState.RUNNING))
        assert (await anext(statuses)).state is RunState.RUNNING


async def test_a_watcher_ends_when_the_object_vanishes() -> None:
    watchers = Watchers()
    watchers.on_change(None, seen(RunState.RUNNING))
    with watchers.watching(RUN) as watcher:
        statuses = watcher.statuses(as_status)
        await anext(statuses)
        watchers.on_change(seen(RunState.RUNNING), None)
        assert [s async for s in statuses] == []


async def test_a_finished_run_is_told_at_once() -> None:
    watchers = Watchers()
    watchers.on_change(None, seen(RunState.ERROR))
    with watchers.watching(RUN) as watcher:
        assert [s.state async for s in watcher.statuses(as_status)] == [RunState.ERROR]


async def test_a_slow_watcher_sees_the_newest_status() -> None:
    watchers = Watchers()
    with watchers.watching(RUN) as watcher:
        statuses = watcher.statuses(as_status)
        await anext(statuses)
        for attempt in range(1, 5):
            watchers.on_change(None, seen(RunState.RUNNING, attempt))
        assert (await anext(statuses)).attempt == 4


def test_names_of_hand_written_runs_are_looked_up() -> None:
    watchers = Watchers()
    watchers.on_change(None, ClusterRun("mine", "uid", RunState.PENDING, 0, None, None))
    known = watchers.known("uid")
    assert (known and known.name, watchers.known("other")) == ("mine", None)
