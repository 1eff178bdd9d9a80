"""Agents through a real operator and API server; only nodes are played."""

import pytest
from tests.integration.operator.harness import Place, condition, until

from runyard_api.states import RunState
from runyard_kube.resources import AGENTS, Resource

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]


async def test_an_agent_gets_its_pods_and_tells_where_they_are_and_what_they_serve(place: Place) -> None:
    await place.agent("pair", replicas={"min": 2, "max": 2})
    status = await place.until_agent("pair", lambda status: status.get("readyReplicas") == 2)
    assert status["graphs"] == ["echo", "failing", "gated"]
    assert [pod["name"] for pod in status["pods"]] == await place.pods("pair")
    assert all(pod["ready"] and pod["endpoint"].endswith(":8123") and pod["nonce"] for pod in status["pods"])
    assert condition(status, "Progressing")["reason"] == "UpToDate"


async def test_a_pod_of_an_agent_is_one_that_pod_security_restricted_admits(place: Place) -> None:
    await place.kube.patch(
        NAMESPACES,
        None,
        place.namespace,
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )
    await place.agent("restricted")
    assert await place.pods("restricted")


async def test_an_image_that_does_not_exist_is_named_and_ends_runs_after_the_deadline(place: Place) -> None:
    await place.agent("imageless", image="missing/agent:1", ready=False, pendingDeadlineSeconds=7)
    row = await place.create(agent_name="imageless")
    status = await place.until_agent("imageless", lambda s: condition(s, "Ready").get("reason") == "ImagePullFailed")
    assert condition(status, "Ready")["message"] == "image missing/agent:1: not found"
    ended = await place.ended(row.run_id)
    assert ended.state is RunState.ERROR
    assert ended.status.error is not None
    assert ended.status.error.error == "ImagePullFailed"
    assert ended.status.error.message == "Agent 'imageless' has no usable pod: image missing/agent:1: not found"

    async def told() -> bool:
        return await place.events(row.run_id) == ["Waiting", "Failed"]

    await until(told, "both Events are posted")  # the last one comes after the status


async def test_a_failed_import_is_told_with_its_last_line_and_pods_are_replaced_ever_more_slowly(place: Place) -> None:
    await place.agent("importless", image="broken/agent:1", ready=False)
    status = await place.until_agent(
        "importless", lambda s: "failed 2 times" in condition(s, "Ready").get("message", "")
    )
    assert condition(status, "Ready")["reason"] == "ImportFailed"
    assert condition(status, "Ready")["message"].startswith("ModuleNotFoundError: No module named 'nope'")
    assert len(await place.pods("importless")) <= 1


async def test_a_secret_without_the_prefix_is_refused_and_no_pod_is_made(place: Place) -> None:
    secret = {"envFrom": [{"secretRef": {"name": "somebody-elses"}}]}
    await place.agent("curious", ready=False, podTemplate=secret)
    status = await place.until_agent("curious", lambda s: bool(condition(s, "Ready")))
    assert condition(status, "Ready")["reason"] == "SecretNotAllowed"
    assert "'somebody-elses'" in condition(status, "Ready")["message"]
    assert await place.pods("curious") == []


async def test_a_changed_template_replaces_the_pods_and_lets_runs_end_first(place: Place) -> None:
    await place.agent("changing")
    before = await place.pods("changing")
    row = await place.create("gated", agent_name="changing", input={"gate": str(gate := place.gate())})
    await place.running(row.run_id)
    patch = {"spec": {"podTemplate": {"env": [{"name": "COLOUR", "value": "blue"}]}}}
    await place.kube.patch(AGENTS, place.namespace, "changing", patch)
    await place.until_agent("changing", lambda s: any(pod["draining"] for pod in s["pods"]))
    other = await place.create("echo", agent_name="changing", input={})
    assert (await place.ended(other.run_id)).status.pod_name not in before
    assert before[0] in await place.pods("changing")
    gate.touch()
    ended = await place.ended(row.run_id)
    assert (ended.state, ended.status.attempt, ended.status.pod_name) == (RunState.SUCCESS, 1, before[0])
    await until(lambda: _only_new(place, before), "the pod of the old template is gone")


async def test_a_restarted_operator_writes_nothing_where_nothing_changed(place: Place) -> None:
    await place.agent("quiet")
    ended = await place.ended((await place.create("echo", agent_name="quiet", input={})).run_id)
    await place.until_agent("quiet", lambda status: status.get("busy") == 0)
    agent = await place.kube.get(AGENTS, place.namespace, "quiet")
    await place.operator.stop()
    await place.operator.start()
    later = await place.create("echo", agent_name="quiet", input={})
    await place.ended(later.run_id)
    after = await place.kube.get(AGENTS, place.namespace, "quiet")
    assert condition(after["status"], "Ready") == condition(agent["status"], "Ready")
    run = await place.until_run(ended.metadata.name, lambda _: True)
    assert run.metadata.resource_version == ended.metadata.resource_version


async def _only_new(place: Place, before: list[str]) -> bool:
    pods = await place.pods("changing")
    return len(pods) == 1 and pods != before
