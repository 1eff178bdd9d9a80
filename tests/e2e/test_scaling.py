"""Agents on real nodes: to zero and back, another template under load, a pod for each run, an orderly end."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.servers import AGENTS, TEST_IMAGE, App, Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
STEPS = 60


def spec(name: str, **fields: Any) -> pytest.MarkDecorator:
    """Gives the test an Agent of this name and spec."""
    return pytest.mark.parametrize("agent", [pytest.param((name, fields), id=name)], indirect=True)


@pytest.fixture
def agent(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """An Agent of this test's own, with the graphs that `testgraphs` serves too: it is reached as NAME/GRAPH."""
    name, fields = request.param
    body = {"image": TEST_IMAGE, **fields}
    manifest = {"apiVersion": "runyard.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": body}
    cluster.apply(manifest)
    cluster.kubectl("wait", "agent", name, "-n", AGENTS, "--for=condition=Ready", "--timeout=60s")
    yield name
    cluster.kubectl("delete", "agent", name, "-n", AGENTS, "--ignore-not-found", "--timeout=60s", timeout=90)


def pods(cluster: Cluster, agent: str) -> list[str]:
    names = cluster.kubectl("get", "pods", "-n", AGENTS, "-l", f"runyard.dev/agent={agent}", "-o", "name")
    return sorted(line.removeprefix("pod/") for line in names.split())


async def until(true: Callable[[], bool], what: str, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await asyncio.to_thread(true):
            return
        await asyncio.sleep(0.3)
    raise AssertionError(f"not within {seconds} s: {what}")


def columns(cluster: Cluster, agent: str) -> tuple[str, ...]:
    """READY, REPLICAS and BUSY as kubectl shows them."""
    return tuple(cluster.kubectl("get", "agent", agent, "-n", AGENTS, "--no-headers").split()[1:4])


@spec("sleepy", replicas={"min": 0, "max": 2, "idleSeconds": 2})
async def test_an_agent_goes_to_zero_serves_what_is_known_there_and_comes_back(
    cluster: Cluster, cluster_app: App, agent: str
) -> None:
    client = cluster_app.client
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, f"{agent}/stub", input={"log": ["first"]})
    await until(lambda: pods(cluster, agent) == [], "no pod is left")
    await until(lambda: columns(cluster, agent) == ("True", "0", "0"), "kubectl shows that it is ready at zero")
    began = time.monotonic()
    [assistant] = await client.assistants.search(graph_id=f"{agent}/stub")
    schemas = await client.assistants.get_schemas(assistant["assistant_id"])
    assert "log" in schemas["input_schema"]["properties"]
    assert (await client.threads.get_state(thread))["values"]["log"] == ["first", "stub"]
    assert len(await client.threads.get_history(thread, limit=1)) == 1
    assert time.monotonic() - began < 5
    assert pods(cluster, agent) == []
    assert len(await client.threads.get_history(thread, limit=10)) > 1, "what only graph code can tell wakes a pod"
    assert (await client.runs.wait(thread, f"{agent}/stub", input={"log": []}))["log"] == ["first", "stub", "stub"]
    await until(lambda: pods(cluster, agent) == [], "no pod is left again")


@spec("roller", slots=4, drainSeconds=2, replicas={"min": 2, "max": 2})
async def test_another_template_under_load_cuts_no_run(cluster: Cluster, cluster_app: App, agent: str) -> None:
    client = cluster_app.client
    before = pods(cluster, agent)

    async def run(number: int) -> list[str]:
        await asyncio.sleep(number * 0.3)
        thread = (await client.threads.create())["thread_id"]
        values = await client.runs.wait(
            thread, f"{agent}/steps", input={"count": STEPS}, config={"recursion_limit": STEPS + 5}
        )
        return list(values["log"])

    runs = [asyncio.create_task(run(number)) for number in range(10)]
    await asyncio.sleep(1)
    change = {"spec": {"podTemplate": {"env": [{"name": "COLOUR", "value": "blue"}]}}}
    cluster.kubectl("patch", "agent", agent, "-n", AGENTS, "--type=merge", "-p", json.dumps(change))
    for log in await asyncio.gather(*runs):
        assert log == [f"step {number}" for number in range(STEPS)]
    await until(lambda: len(pods(cluster, agent)) == 2 and not set(pods(cluster, agent)) & set(before), "two new pods")
    objects = json.loads(
        cluster.kubectl("get", "runs", "-n", AGENTS, "--field-selector", f"spec.agentName={agent}", "-o", "json")
    )["items"]
    ended = [(one["status"]["state"], one["status"].get("failures", 0)) for one in objects]
    assert ended == [("success", 0)] * 10


@spec("once", maxRunsPerPod=1, replicas={"min": 1, "max": 2})
async def test_each_run_has_a_pod_of_its_own(cluster: Cluster, cluster_app: App, agent: str) -> None:
    client = cluster_app.client
    threads = [(await client.threads.create())["thread_id"] for _ in range(3)]
    await asyncio.gather(*(client.runs.wait(thread, f"{agent}/stub", input={"log": []}) for thread in threads))
    runs = [cluster.get("run", (await client.runs.list(thread))[0]["run_id"]) for thread in threads]
    used = {run["status"]["podNonce"] for run in runs}
    assert len(used) == 3

    def one_fresh() -> bool:
        left = cluster.get("agent", agent)["status"]["pods"]
        return len(left) == 1 and left[0]["ready"] and left[0]["nonce"] not in used

    await until(one_fresh, "one fresh pod is kept")


@spec("leaver", replicas={"min": 1, "max": 1}, drainSeconds=30)
async def test_a_deleted_agent_lets_its_run_end_and_goes(cluster: Cluster, cluster_app: App, agent: str) -> None:
    client = cluster_app.client
    thread = (await client.threads.create())["thread_id"]
    run = await client.runs.create(thread, f"{agent}/slow", input={"log": [], "seconds": 4.0})
    await until(lambda: cluster.get("run", run["run_id"])["status"]["state"] == "running", "the run is at work")
    cluster.kubectl("delete", "agent", agent, "-n", AGENTS, "--wait=false")
    await client.runs.join(thread, run["run_id"])
    assert (await client.runs.get(thread, run["run_id"]))["status"] == "success"
    await until(lambda: agent not in cluster.kubectl("get", "agents", "-n", AGENTS, "-o", "name"), "the Agent is gone")
    assert pods(cluster, agent) == []
