"""What a platform engineer sees with kubectl, on the native cluster with the chart installed."""

import asyncio
import json
import re
import uuid
from typing import Any

import httpx
import pytest
from tests.e2e.servers import AGENTS, App, Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def run_manifest(name: str, **spec: Any) -> dict[str, Any]:
    """A hand-written Run of the stub graph."""
    defaults = {"agentName": "testgraphs", "graphId": "stub", "payload": {"input": {"log": ["by kubectl"]}}}
    body = {**defaults, **spec}
    return {"apiVersion": "runyard.dev/v1alpha1", "kind": "Run", "metadata": {"name": name}, "spec": body}


def agent_manifest(name: str, **spec: Any) -> dict[str, Any]:
    body = {"image": "docker.io/runyard/runyard-testgraphs:0.1.0", "pendingDeadlineSeconds": 10, **spec}
    return {"apiVersion": "runyard.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": body}


def a_name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def refusal(cluster: Cluster, manifest: dict[str, Any]) -> str:
    """What kubectl prints when the API server refuses the object."""
    with pytest.raises(AssertionError) as caught:
        cluster.apply(manifest)
    return str(caught.value)


@pytest.fixture(scope="module", autouse=True)
def run_of_nobody(cluster: Cluster) -> str:
    """A Run whose Agent doesn't exist, applied before all tests: its end takes as long as the others together."""
    name = a_name("orphan")
    cluster.apply(run_manifest(name, agentName="nobody"))
    return name


async def test_kubectl_get_runs_tells_the_story_of_a_run(cluster: Cluster, cluster_app: App) -> None:
    thread = (await cluster_app.client.threads.create())["thread_id"]
    run = await cluster_app.client.runs.create(thread, "stub", input={"log": []})
    await cluster_app.client.runs.join(thread, run["run_id"])
    cluster.kubectl("wait", f"run/{run['run_id']}", "-n", AGENTS, "--for=condition=Succeeded", "--timeout=20s")
    header, row = cluster.kubectl("get", "runs", run["run_id"], "-n", AGENTS).strip().splitlines()
    assert header.split() == ["NAME", "STATUS", "AGENT", "THREAD", "ATTEMPT", "AGE", "DURATION"]
    name, status, agent, on_thread, attempt, _age, duration = row.split()
    assert (name, status, agent, on_thread, attempt) == (run["run_id"], "success", "testgraphs", thread, "1")
    assert re.fullmatch(r"\d+(\.\d+)?s", duration)
    spec = cluster.get("run", run["run_id"])["spec"]
    assert "payload" not in spec, "what a user said stays in the database"
    assert spec["sequence"] == 1


def test_a_run_applied_with_kubectl_runs(cluster: Cluster) -> None:
    name = a_name("by-hand")
    cluster.apply(run_manifest(name))
    cluster.kubectl("wait", f"run/{name}", "-n", AGENTS, "--for=condition=Succeeded", "--timeout=30s")
    status = cluster.get("run", name)["status"]
    assert (status["state"], status["attempt"]) == ("success", 1)


async def test_a_run_applied_with_kubectl_writes_to_the_thread_it_names(cluster: Cluster, cluster_app: App) -> None:
    thread = (await cluster_app.client.threads.create())["thread_id"]
    first = a_name("by-hand")
    cluster.apply(run_manifest(first, threadId=thread))
    cluster.kubectl("wait", f"run/{first}", "-n", AGENTS, "--for=condition=Succeeded", "--timeout=30s")
    state = await cluster_app.client.threads.get_state(thread)
    assert state["values"]["log"] == ["by kubectl", "stub"]
    assert len(await cluster_app.client.runs.list(thread)) == 1


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no agent": ({"agentName": None}, "agentName"),
    "a thread id that is no UUID": ({"threadId": "mine"}, "threadId"),
    "an unknown strategy": ({"multitaskStrategy": "Maybe"}, "multitaskStrategy"),
    "an unknown field": ({"grahpId": "x"}, "grahpId"),
    "a negative lifetime": ({"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_an_invalid_run_is_refused_by_the_api_server_with_the_fields_name(cluster: Cluster, case: str) -> None:
    spec, field = REFUSED[case]
    assert field in refusal(cluster, run_manifest(a_name("bad"), **spec))


def test_the_spec_of_a_run_cannot_be_changed(cluster: Cluster) -> None:
    name = a_name("fixed")
    cluster.apply(run_manifest(name))
    assert "graphId" in refusal(cluster, run_manifest(name, graphId="tokens"))


async def test_a_run_cancelled_with_kubectl_stops(cluster: Cluster) -> None:
    name = a_name("cancel")
    cluster.apply(run_manifest(name, graphId="slow", payload={"input": {"seconds": 60}}))
    cluster.kubectl("wait", f"run/{name}", "-n", AGENTS, "--for=jsonpath={.status.state}=running", "--timeout=20s")
    patch = json.dumps({"spec": {"cancel": {"action": "Interrupt", "reason": "enough"}}})
    cluster.kubectl("patch", "run", name, "-n", AGENTS, "--type=merge", "-p", patch)
    cluster.kubectl("wait", f"run/{name}", "-n", AGENTS, "--for=jsonpath={.status.state}=interrupted", "--timeout=20s")


BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "an image that doesn't exist": (
        {"image": "localhost:1/no-such-image:1"},
        "ImagePullFailed",
        "no-such-image",
    ),
    "an image without graphs": ({"image": "docker.io/runyard/runyard-runtime:0.1.0"}, "NoGraphs", "langgraph.json"),
    "a graph that fails to import": (
        {"graphs": {"broken": "./missing_module.py:graph"}},
        "ImportFailed",
        "missing_module",
    ),
}


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_broken_agent_says_why_and_its_runs_end_with_that_reason(cluster: Cluster, case: str) -> None:
    spec, reason, words = BROKEN[case]
    name = a_name("broken")
    cluster.apply(agent_manifest(name, **spec))
    try:
        run = a_name("of-broken")
        cluster.apply(run_manifest(run, agentName=name, graphId="broken"))
        cluster.kubectl(
            "wait",
            f"agent/{name}",
            "-n",
            AGENTS,
            f"--for=jsonpath={{.status.conditions[0].reason}}={reason}",
            "--timeout=60s",
        )
        [ready] = [c for c in cluster.get("agent", name)["status"]["conditions"] if c["type"] == "Ready"]
        assert ready["status"] == "False"
        assert words in ready["message"]
        cluster.kubectl("wait", f"run/{run}", "-n", AGENTS, "--for=jsonpath={.status.state}=error", "--timeout=60s")
        assert words in cluster.get("run", run)["status"]["error"]["message"]
    finally:
        cluster.kubectl("delete", "agent", name, "-n", AGENTS, "--wait=false")


async def test_a_stream_goes_on_when_its_pod_dies(cluster: Cluster, cluster_app: App) -> None:
    thread = (await cluster_app.client.threads.create())["thread_id"]
    run = await cluster_app.client.runs.create(
        thread, "steps", input={"log": [], "count": 60}, stream_mode="updates", config={"recursion_limit": 100}
    )
    steps = 0
    attempts: list[int] = []
    async for part in cluster_app.client.runs.join_stream(thread, run["run_id"], last_event_id="-1"):
        if part.event == "metadata":
            attempts.append(part.data["attempt"])
        steps += part.event == "updates"
        if steps == 10 and attempts == [1]:
            pod = cluster.get("run", run["run_id"])["status"]["podName"]
            await asyncio.to_thread(cluster.kubectl, "delete", "pod", pod, "-n", AGENTS, "--grace-period=0", "--force")
    assert attempts == [1, 2]
    state = await cluster_app.client.threads.get_state(thread)
    assert state["values"]["log"] == [f"step {i}" for i in range(60)]


async def test_without_a_valid_key_only_health_answers(cluster_app: App) -> None:
    async with httpx.AsyncClient(base_url=cluster_app.url) as http:
        assert (await http.post("/threads", json={})).status_code == 401
        assert (await http.post("/threads", json={}, headers={"x-api-key": "wrong"})).status_code == 401
        assert (await http.get("/ok")).status_code == 200


def test_a_run_of_an_agent_that_doesnt_exist_ends_with_a_reason(cluster: Cluster, run_of_nobody: str) -> None:
    name = run_of_nobody
    cluster.kubectl("wait", f"run/{name}", "-n", AGENTS, "--for=jsonpath={.status.state}=error", "--timeout=150s")
    assert "nobody" in cluster.get("run", name)["status"]["error"]["message"]
