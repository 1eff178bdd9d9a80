"""The API server and the database go away under runs and come back: the operator goes on by itself, nothing is lost."""

import uuid
from functools import partial

import httpx
import pytest
from tests.integration.operator.harness import Place, until
from tests.support.api_process import ApiProcess
from tests.support.apiserver import ApiServer
from tests.support.postgres import PostgresServer

from runyard_api.states import RunState
from runyard_store.runs import RunRow

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]


async def test_an_api_server_that_is_away_for_longer_than_a_lease_costs_no_run_an_attempt(
    place: Place, api_server: ApiServer
) -> None:
    await place.agent()
    gates = [place.gate() for _ in range(3)]
    running = [await place.create("gated", input={"gate": str(gate)}) for gate in gates]
    behind = [await place.create("echo", thread_id=row.thread_id, input={}) for row in running]
    for row in running:
        await place.running(row.run_id)
    pods, said = await place.pods("hello"), len(place.operator.said())
    process = ApiProcess(api_server)

    process.kill()
    for gate in gates[:2]:
        gate.touch()
    for row in running[:2]:
        await until(partial(_has_ended, place, row), "the pod ends the run without an API server")
    await until(lambda: "not leading any more" in place.operator.said()[said:], "the operator stops to work")
    assert await _alive(place)
    process.start()

    gates[2].touch()
    later = await place.create("echo", input={})
    await _all_succeed_at_once(place, [*running, *behind, later])
    assert await place.pods("hello") == pods
    assert await _metric(place, 'api_requests_total{code="0"') > 0


async def test_a_database_that_is_away_holds_runs_up_and_loses_none(place: Place, server: PostgresServer) -> None:
    await place.agent()
    gate = place.gate()
    running = await place.create("gated", input={"gate": str(gate)})
    behind = await place.create("echo", thread_id=running.thread_id, input={})
    ended = await place.create("echo", input={})
    await place.running(running.run_id)
    await place.ended(ended.run_id)
    pods, said = await place.pods("hello"), len(place.operator.said())

    server.stop()
    try:
        name = f"by-hand-{uuid.uuid4().hex[:6]}"
        await place.apply_run(name, agentName="hello", graphId="echo", payload={"input": {}})
        await until(lambda: "reconcile failed" in place.operator.said()[said:], "the operator can't admit it")
        assert await _alive(place)
    finally:
        server.start()

    gate.touch()
    assert (await place.ended(name)).state is RunState.SUCCESS
    await _all_succeed_at_once(place, [running, behind])
    assert await place.pods("hello") == pods


async def _all_succeed_at_once(place: Place, rows: list[RunRow]) -> None:
    """Each run ends well in its first attempt, in the object and in the row."""
    for row in rows:
        ended = await place.ended(row.run_id)
        assert (ended.state, ended.status.attempt) == (RunState.SUCCESS, 1)
        kept = await place.row(row.run_id)
        assert (kept.status, kept.attempt) == (RunState.SUCCESS, 1)


async def _has_ended(place: Place, row: RunRow) -> bool:
    return (await place.row(row.run_id)).status.finished


async def _alive(place: Place) -> bool:
    """Its probe answers that nothing stands still."""
    async with httpx.AsyncClient() as http:
        return (await http.get(f"http://127.0.0.1:{place.operator.port}/healthz")).status_code == 200


async def _metric(place: Place, beginning: str) -> float:
    """The sum of the operator's samples whose names begin so."""
    async with httpx.AsyncClient() as http:
        lines = (await http.get(f"http://127.0.0.1:{place.operator.port}/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"runyard_operator_{beginning}"))
