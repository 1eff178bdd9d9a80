"""What a person sees: columns, short names, the category, selectors, and `kubectl explain`."""

import re
from datetime import UTC, datetime

import pytest
from tests.support.apiserver import ApiServer
from tests.support.manifests import agent, gateway_run, hand_written_run

from runyard_api.conditions import AgentReason, ConditionType, set_condition
from runyard_kube.client import KubeClient, Selection
from runyard_kube.resources import AGENTS, RUNS

pytestmark = pytest.mark.apiserver

THREAD, OTHER = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e", "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6f"
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def _table(text: str) -> list[dict[str, str]]:
    """The rows of a kubectl table by column; cells are cut where the headings begin."""
    heading, *rows = text.rstrip("\n").split("\n")
    found = list(re.finditer(r"\S+", heading))
    starts = [match.start() for match in found] + [len(text)]
    return [{match[0]: row[starts[i] : starts[i + 1]].strip() for i, match in enumerate(found)} for row in rows]


async def test_the_columns_of_a_run(kube: KubeClient, api_server: ApiServer, namespace: str) -> None:
    name = (await kube.create(RUNS, namespace, gateway_run(namespace, thread_id=THREAD)))["metadata"]["name"]
    row = _table(api_server.kubectl("-n", namespace, "get", "runs"))[0]
    assert list(row) == ["NAME", "STATUS", "AGENT", "THREAD", "ATTEMPT", "AGE", "DURATION"]
    assert row | {"AGE": ""} == {
        "NAME": name, "STATUS": "pending", "AGENT": "hello", "THREAD": THREAD, "ATTEMPT": "", "AGE": "", "DURATION": "",
    }  # fmt: skip
    done = {"state": "success", "attempt": 2, "duration": "3.2s", "podName": "hello-0a1b2c3d-0"}
    await kube.patch_status(RUNS, namespace, name, done)
    row = _table(api_server.kubectl("-n", namespace, "get", "runs", "-o", "wide"))[0]
    assert list(row) == ["NAME", "STATUS", "AGENT", "THREAD", "ATTEMPT", "AGE", "DURATION", "POD"]
    assert (row["STATUS"], row["ATTEMPT"], row["DURATION"], row["POD"]) == ("success", "2", "3.2s", "hello-0a1b2c3d-0")


async def test_the_columns_of_an_agent(kube: KubeClient, api_server: ApiServer, namespace: str) -> None:
    await kube.create(AGENTS, namespace, agent())
    conditions = set_condition((), ConditionType.PROGRESSING, True, reason=AgentReason.PODS_STARTING, now=NOW)
    conditions = set_condition(conditions, ConditionType.READY, False, reason=AgentReason.PODS_STARTING, now=NOW)
    status = {"conditions": [c.to_json() for c in conditions], "replicas": 1, "busy": 0}
    await kube.patch_status(AGENTS, namespace, "hello", status)
    row = _table(api_server.kubectl("-n", namespace, "get", "agents"))[0]
    assert list(row) == ["NAME", "READY", "REPLICAS", "BUSY", "AGE"]
    assert (row["READY"], row["REPLICAS"], row["BUSY"]) == ("False", "1", "0")


@pytest.mark.parametrize("word", ["rn", "run", "runs", "runs.runyard.dev", "runyard"])
async def test_runs_are_found_by(kube: KubeClient, api_server: ApiServer, namespace: str, word: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run("one"))
    assert api_server.kubectl("-n", namespace, "get", word, "-o", "name") == "run.runyard.dev/one\n"


@pytest.mark.parametrize("word", ["ag", "agent", "agents", "agents.runyard.dev", "runyard"])
async def test_agents_are_found_by(kube: KubeClient, api_server: ApiServer, namespace: str, word: str) -> None:
    await kube.create(AGENTS, namespace, agent("one"))
    assert api_server.kubectl("-n", namespace, "get", word, "-o", "name") == "agent.runyard.dev/one\n"


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        (f"spec.threadId={THREAD}", ["a"]),
        ("spec.agentName=other", ["b"]),
        ("status.state=pending", ["b"]),
        ("status.state!=pending", ["a"]),
        (f"spec.threadId={THREAD},status.state=running", ["a"]),
        ("status.state=success", []),
    ],
)
async def test_runs_are_selected_by(kube: KubeClient, namespace: str, selector: str, found: list[str]) -> None:
    await kube.create(RUNS, namespace, hand_written_run("a", threadId=THREAD))
    await kube.create(RUNS, namespace, hand_written_run("b", threadId=OTHER, agentName="other"))
    await kube.patch_status(RUNS, namespace, "a", {"state": "running"})
    listing = await kube.list(RUNS, namespace, selection=Selection(fields=selector))
    assert [item["metadata"]["name"] for item in listing.items] == found


@pytest.mark.parametrize("field", ["runs.spec.multitaskStrategy", "agents.spec.replicas.max", "runs.status.state"])
def test_kubectl_explains_every_field(api_server: ApiServer, field: str) -> None:
    text = api_server.kubectl("explain", field)
    assert "DESCRIPTION" in text
    assert "<empty>" not in text
