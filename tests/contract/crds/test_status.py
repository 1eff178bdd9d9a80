"""Status and spec don't reach into each other, and the status holds what its schema says."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from tests.support.apiserver import ApiServer
from tests.support.manifests import agent, hand_written_run

from runyard_api.agent import Agent, AgentPodStatus, AgentStatus
from runyard_api.conditions import AgentReason, ConditionType, RunReason, set_condition
from runyard_api.run import Run, RunErrorStatus, RunStatus
from runyard_api.states import RunState
from runyard_kube.client import KubeClient
from runyard_kube.errors import Conflict, Invalid
from runyard_kube.resources import AGENTS, RUNS

pytestmark = pytest.mark.apiserver

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


async def test_a_status_sent_at_creation_is_dropped(kube: KubeClient, namespace: str) -> None:
    created = await kube.create(RUNS, namespace, hand_written_run() | {"status": {"state": "success", "attempt": 3}})
    assert created["status"] == {"state": "pending"}


async def test_a_patch_of_the_object_leaves_the_status(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    patched = await kube.patch(RUNS, namespace, "by-hand", {"status": {"state": "success"}})
    assert patched["status"] == {"state": "pending"}


def test_a_patch_of_the_status_leaves_the_spec(api_server: ApiServer, namespace: str) -> None:
    api_server.kubectl("-n", namespace, "create", "-f", "-", stdin=orjson.dumps(agent()).decode())
    both = '{"spec": {"image": "other:2"}, "status": {"replicas": 1}}'
    api_server.kubectl("-n", namespace, "patch", "ag", "hello", "--subresource=status", "--type=merge", "-p", both)
    shown = "jsonpath={.spec.image} {.status.replicas} {.metadata.generation}"
    assert api_server.kubectl("-n", namespace, "get", "ag", "hello", "-o", shown) == "docker.io/example/hello:1 1 1"


async def test_a_run_s_whole_status_is_kept_as_the_models_write_it(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    status = RunStatus(
        state=RunState.ERROR,
        sequence=2,
        attempt=1,
        failures=1,
        pod_name="hello-0a1b2c3d-0",
        pod_nonce="n1",
        endpoint="10.0.0.7:8123",
        start_time=NOW,
        completion_time=NOW,
        duration="0.0s",
        error=RunErrorStatus(error="ValueError", message="no"),
        conditions=set_condition((), ConditionType.SUCCEEDED, False, reason=RunReason.FAILED, generation=1, now=NOW),
    )
    read = await kube.patch_status(RUNS, namespace, "by-hand", status.to_json())
    assert read["status"] == status.to_json()
    assert Run.from_manifest(read).status == status


async def test_an_agent_s_whole_status_is_kept_as_the_models_write_it(kube: KubeClient, namespace: str) -> None:
    await kube.create(AGENTS, namespace, agent())
    status = AgentStatus(
        observed_generation=1,
        conditions=set_condition((), ConditionType.READY, True, reason=AgentReason.AVAILABLE, generation=1, now=NOW),
        replicas=1,
        ready_replicas=1,
        busy=3,
        template_hash="0a1b2c3d",
        graphs=("agent",),
        pods=(AgentPodStatus(name="hello-0a1b2c3d-0", endpoint="10.0.0.7:8123", nonce="n1", ready=True),),
    )
    read = await kube.patch_status(AGENTS, namespace, "hello", status.to_json())
    assert read["status"] == status.to_json()
    assert Agent.from_manifest(read).status == status


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"state": "done"}, 'status.state: Unsupported value: "done"'),
        ({"attempt": -1}, "status.attempt"),
        ({"startTime": "yesterday"}, "status.startTime"),
        ({"conditions": [{"type": "Succeeded", "status": "Yes"}]}, "status.conditions[0].status: Unsupported value"),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, "status.conditions[0].reason: Required value"),
    ],
    ids=["an unknown state", "a negative attempt", "a time that is none", "a status that is none", "no reason"],
)
async def test_a_run_status_is_refused_with(kube: KubeClient, namespace: str, status: Any, said: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    with pytest.raises(Invalid) as refused:
        await kube.patch_status(RUNS, namespace, "by-hand", status)
    assert said in refused.value.message


async def test_two_conditions_of_one_type_are_refused(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    one = set_condition((), ConditionType.SUCCEEDED, None, reason=RunReason.PENDING, now=NOW)[0].to_json()
    with pytest.raises(Invalid, match=r"status\.conditions\[1\]: Duplicate value"):
        await kube.patch_status(RUNS, namespace, "by-hand", {"conditions": [one, one]})


async def test_a_status_is_not_written_over_a_newer_object(kube: KubeClient, namespace: str) -> None:
    created = await kube.create(RUNS, namespace, hand_written_run())
    seen = created["metadata"]["resourceVersion"]
    await kube.patch_status(RUNS, namespace, "by-hand", {"attempt": 1}, resource_version=seen)
    with pytest.raises(Conflict):
        await kube.patch_status(RUNS, namespace, "by-hand", {"attempt": 2}, resource_version=seen)


async def test_kubectl_waits_for_our_conditions(kube: KubeClient, api_server: ApiServer, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    conditions = set_condition((), ConditionType.SUCCEEDED, True, reason=RunReason.COMPLETED, now=NOW)
    await kube.patch_status(RUNS, namespace, "by-hand", {"conditions": [c.to_json() for c in conditions]})
    done = api_server.kubectl("-n", namespace, "wait", "--for=condition=Succeeded", "--timeout=5s", "run/by-hand")
    assert "condition met" in done
