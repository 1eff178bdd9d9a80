"""Two operators: one works, the other looks on and takes over. Real processes on a real API server."""

import signal
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.operator.harness import OperatorProcess, Place, until

from runyard_api.states import RunState
from runyard_kube.resources import LEASES

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
]
LEASE = "runyard-operator"


@pytest_asyncio.fixture(loop_scope="module")
async def standby(place: Place) -> AsyncIterator[OperatorProcess]:
    """A second operator, up and ready while the first one leads."""
    await place.agent()
    twin = place.operator.twin("twin")
    await twin.start()
    try:
        yield twin
    finally:
        await twin.stop(signal.SIGKILL)


async def test_a_standby_works_nothing_until_the_leader_is_killed_and_then_everything_once(
    place: Place, standby: OperatorProcess
) -> None:
    gates = [place.gate() for _ in range(4)]
    thread = str(uuid.uuid4())
    running = [await place.create("gated", input={"gate": str(gate)}) for gate in gates]
    queued = [await place.create("echo", thread_id=running[0].thread_id, input={}) for _ in range(2)]
    for row in running:
        await place.running(row.run_id)
    assert not await _leads(place, standby)
    before = await _term(place)
    await place.operator.stop(signal.SIGKILL)
    while_nobody_leads = [await place.create("echo", thread_id=thread, input={}) for _ in range(3)]
    for gate in gates[:2]:
        gate.touch()
    await until(lambda: _leads(place, standby), "the standby leads", 15)
    for gate in gates[2:]:
        gate.touch()
    rows = [*running, *queued, *while_nobody_leads]
    for row in rows:
        assert (await place.ended(row.run_id)).state is RunState.SUCCESS
    assert {(await place.row(row.run_id)).attempt for row in rows} == {1}
    assert await _term(place) > before
    await place.operator.start()


async def test_a_leader_that_is_stopped_hands_over_at_once_and_its_pods_stay(
    place: Place, standby: OperatorProcess
) -> None:
    leader, other = await _both(place, standby)
    pods = await place.pods("hello")
    gate = place.gate()
    row = await place.create("gated", input={"gate": str(gate)})
    await place.running(row.run_id)
    assert await leader.stop() == 0
    await until(lambda: _leads(place, other), "the other one leads", 5)
    gate.touch()
    ended = await place.ended(row.run_id)
    assert (ended.state, ended.status.attempt) == (RunState.SUCCESS, 1)
    assert await place.pods("hello") == pods
    await leader.start()


async def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes(place: Place, standby: OperatorProcess) -> None:
    leader, other = await _both(place, standby)
    gate = place.gate()
    row = await place.create("gated", input={"gate": str(gate)})
    await place.running(row.run_id)
    said = len(leader.said())
    leader.send(signal.SIGSTOP)
    try:
        await until(lambda: _leads(place, other), "the other one leads", 15)
        late = await place.create("echo", input={})
        assert (await place.ended(late.run_id)).status.attempt == 1
    finally:
        leader.send(signal.SIGCONT)
    await until(lambda: _stepped_down(leader, said), "the frozen one steps down", 10)
    gate.touch()
    assert (await place.ended(row.run_id)).status.attempt == 1
    assert [(await place.row(one.run_id)).attempt for one in (row, late)] == [1, 1]


async def _term(place: Place) -> int:
    raw = await place.kube.get(LEASES, place.namespace, LEASE)
    return int(raw["spec"]["leaseTransitions"])


async def _leads(place: Place, operator: OperatorProcess) -> bool:
    raw = await place.kube.get(LEASES, place.namespace, LEASE)
    return str(raw["spec"].get("holderIdentity")).startswith(f"{operator.name}_")


async def _both(place: Place, standby: OperatorProcess) -> tuple[OperatorProcess, OperatorProcess]:
    """The one that leads, and the other, once either does."""
    await until(lambda: _one_leads(place, standby), "one of them leads", 30)
    ours = await _leads(place, place.operator)
    return (place.operator, standby) if ours else (standby, place.operator)


async def _one_leads(place: Place, standby: OperatorProcess) -> bool:
    return await _leads(place, place.operator) or await _leads(place, standby)


async def _stepped_down(operator: OperatorProcess, said: int) -> bool:
    return "not leading any more" in operator.said()[said:]
