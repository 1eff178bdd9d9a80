"""Agents that scale, are replaced and are deleted, through a real operator and API server; only nodes are played."""

import pytest
from tests.integration.operator.harness import Place, condition, until

from runyard_api.crd import Manifest
from runyard_api.names import AGENT_FINALIZER, ANNOTATION_DRAINING, ANNOTATION_WANTED_AT
from runyard_api.states import RunState
from runyard_kube.errors import NotFound
from runyard_kube.resources import AGENTS, PODS
from runyard_operator.world import utc_now
from runyard_store.agent_graphs import read_graphs

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]


def at_zero(status: Manifest) -> bool:
    return status.get("replicas") == 0 and condition(status, "Ready").get("reason") == "ScaledToZero"


async def test_an_agent_goes_to_zero_and_comes_back_for_a_run_and_for_a_request(place: Place) -> None:
    await place.agent("idler", replicas={"min": 0, "max": 2, "idleSeconds": 1})
    status = await place.until_agent("idler", at_zero)
    assert condition(status, "Ready")["status"] == "True"
    assert status["graphs"] == ["echo", "failing", "gated"]
    kept = await read_graphs(place.db, "idler", status["templateHash"])
    assert kept is not None
    assert "log" in kept["echo"]["input_schema"]["properties"]
    assert await place.pods("idler") == []
    ended = await place.ended((await place.create("echo", agent_name="idler", input={})).run_id)
    assert ended.state is RunState.SUCCESS
    await place.until_agent("idler", at_zero)
    mark = {"metadata": {"annotations": {ANNOTATION_WANTED_AT: utc_now().isoformat()}}}
    await place.kube.patch(AGENTS, place.namespace, "idler", mark)
    await place.until_agent("idler", lambda status: status.get("readyReplicas") == 1)


async def test_there_are_as_many_pods_as_there_is_to_do(place: Place) -> None:
    await place.agent("busy", slots=1, replicas={"min": 0, "max": 3, "idleSeconds": 1})
    gate = place.gate()
    rows = [await place.create("gated", agent_name="busy", input={"gate": str(gate)}) for _ in range(5)]
    await place.until_agent("busy", lambda status: status.get("readyReplicas") == 3 and status["busy"] == 3)
    gate.touch()
    for row in rows:
        assert (await place.ended(row.run_id)).status.attempt == 1
    await place.until_agent("busy", at_zero)


async def test_each_run_has_a_pod_of_its_own(place: Place) -> None:
    await place.agent("once", maxRunsPerPod=1, replicas={"min": 1, "max": 1})
    rows = [await place.create("echo", agent_name="once", input={}) for _ in range(3)]
    used = {(await place.ended(row.run_id)).status.pod_nonce for row in rows}
    assert len(used) == 3

    def fresh_and_ready(status: Manifest) -> bool:
        ready = condition(status, "Ready").get("status") == "True"
        return ready and len(status["pods"]) == 1 and status["pods"][0]["nonce"] not in used

    await place.until_agent("once", fresh_and_ready)


async def test_a_pod_marked_by_a_person_is_replaced_after_its_runs(place: Place) -> None:
    await place.agent("marked")
    [before] = await place.pods("marked")
    gate = place.gate()
    row = await place.create("gated", agent_name="marked", input={"gate": str(gate)})
    await place.running(row.run_id)
    mark = {"metadata": {"annotations": {ANNOTATION_DRAINING: "please"}}}
    await place.kube.patch(PODS, place.namespace, before, mark)
    other = await place.ended((await place.create("echo", agent_name="marked", input={})).run_id)
    assert other.status.pod_name != before
    gate.touch()
    ended = await place.ended(row.run_id)
    assert (ended.state, ended.status.pod_name) == (RunState.SUCCESS, before)

    async def replaced() -> bool:
        return before not in await place.pods("marked")

    await until(replaced, "the marked pod is gone")


async def test_a_deleted_agent_lets_its_runs_end_and_then_goes(place: Place) -> None:
    await place.agent("leaving", slots=1)
    gate = place.gate()
    row = await place.create("gated", agent_name="leaving", input={"gate": str(gate)})
    await place.running(row.run_id)
    waiting = await place.create("echo", agent_name="leaving", input={})
    there = await place.kube.get(AGENTS, place.namespace, "leaving")
    assert there["metadata"]["finalizers"] == [AGENT_FINALIZER]
    await place.kube.delete(AGENTS, place.namespace, "leaving")
    refused = await place.ended(waiting.run_id)
    assert refused.status.error is not None
    assert (refused.status.error.error, refused.status.error.message) == (
        "AgentDeleted",
        "Agent 'leaving' is being deleted",
    )
    status = await place.until_agent("leaving", lambda s: condition(s, "Ready").get("reason") == "Deleting")
    assert len(status["pods"]) == 1
    gate.touch()
    assert (await place.ended(row.run_id)).state is RunState.SUCCESS

    async def gone() -> bool:
        try:
            await place.kube.get(AGENTS, place.namespace, "leaving")
        except NotFound:
            return await place.pods("leaving") == []
        return False

    await until(gone, "the Agent and its pods are gone")
    assert await read_graphs(place.db, "leaving", status["templateHash"]) is None


async def test_a_graph_id_is_the_oldest_agents(place: Place) -> None:
    await place.agent("later-one")
    status = await place.until_agent("later-one", lambda s: bool(condition(s, "GraphConflict")))
    found = condition(status, "GraphConflict")
    assert (found["status"], found["reason"]) == ("True", "DuplicateGraph")
    assert "'echo' is served by Agent 'idler'" in found["message"]
