"""The gateway's world in a cluster: Run objects made, cancelled and watched on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from tests.support.manifests import agent, hand_written_run
from tests.support.store_rows import new_run, stored_run

from runyard_api.crd import Manifest
from runyard_api.errors import NotFound, Unavailable
from runyard_api.states import CancelAction, RunState
from runyard_clients.runtime import RuntimeClient, pooled_http
from runyard_gateway.cluster.kube_runs import Cluster, KubeRuns
from runyard_gateway.ports import RunStatus
from runyard_kube.client import KubeClient
from runyard_kube.resources import AGENTS, RUNS
from runyard_store.database import Database
from runyard_store.deletion import RemovedRun
from runyard_store.runs import RunRow, create_run, get_run, request_cancel

pytestmark = pytest.mark.apiserver
KEY = b"0123456789abcdef0123456789abcdef"


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def pods() -> AsyncIterator[aiohttp.ClientSession]:
    async with pooled_http() as client:
        yield client


@pytest.fixture
async def runs(kube: KubeClient, namespace: str, db: Database, pods: aiohttp.ClientSession) -> AsyncIterator[KubeRuns]:
    world = KubeRuns(Cluster(kube, pods, db, namespace, KEY, now))
    world.start()
    yield world
    await world.stop()


async def stored(db: Database) -> RunRow:
    return await stored_run(db, assistant_id=str(uuid4()), graph_id="chat", agent_name="hello")


async def test_a_run_becomes_an_object_once_and_its_row_keeps_the_uid(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    await runs.submit(run)
    made = await kube.get(RUNS, namespace, run.run_id)
    assert made["spec"]["threadId"] == run.thread_id
    assert made["spec"]["sequence"] == 1
    row = await get_run(db, run.run_id)
    assert row.object_uid == made["metadata"]["uid"]
    await runs.submit(run)
    assert (await kube.get(RUNS, namespace, run.run_id))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_run_that_the_api_server_refuses_ends_with_the_reason(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored_run(db, agent_name="Not A Name")
    await runs.submit(run)
    row = await get_run(db, run.run_id)
    assert (row.status, (row.error or {})["error"]) == (RunState.ERROR, "Refused")


async def test_a_cancel_is_patched_and_may_be_escalated_but_not_weakened(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    await runs.submit(run)
    run = await get_run(db, run.run_id)
    await runs.cancel(run, CancelAction.INTERRUPT, "why")
    await runs.cancel(run, CancelAction.ROLLBACK, "again")
    await runs.cancel(run, CancelAction.INTERRUPT, "too late")
    cancel = (await kube.get(RUNS, namespace, run.run_id))["spec"]["cancel"]
    assert cancel == {"action": "Rollback", "reason": "again"}


async def test_a_cancel_of_a_run_without_an_object_makes_it_with_the_cancel(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    row = await request_cancel(db, run.run_id, CancelAction.INTERRUPT, "early")
    await runs.cancel(row, CancelAction.INTERRUPT, "early")
    assert (await kube.get(RUNS, namespace, run.run_id))["spec"]["cancel"]["action"] == "Interrupt"


async def test_a_cancel_of_a_run_whose_object_was_deleted_makes_none(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    await runs.submit(run)
    await kube.delete(RUNS, namespace, run.run_id)
    await runs.cancel(await get_run(db, run.run_id), CancelAction.INTERRUPT, "")
    assert [m["metadata"]["name"] for m in (await kube.list(RUNS, namespace)).items] == []


async def test_the_object_of_a_removed_run_goes_whoever_wrote_it(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    await runs.submit(run)
    for _ in range(2):
        await runs.remove(RemovedRun(run.run_id, run.thread_id, unfinished=True))
    await runs.remove(RemovedRun(str(uuid4()), run.thread_id, unfinished=False))

    uid = (await kube.create(RUNS, namespace, hand_written_run("mine")))["metadata"]["uid"]
    await kube.patch_status(RUNS, namespace, "mine", {"state": "success"})
    async with runs.watch(uid) as changes:
        async for _ in changes:
            pass
    await runs.remove(RemovedRun(uid, uid, unfinished=False))
    assert (await kube.list(RUNS, namespace)).items == []


async def statuses(runs: KubeRuns, run_id: str, seen: "asyncio.Queue[RunStatus | None]") -> None:
    async with runs.watch(run_id) as changes:
        async for status in changes:
            seen.put_nowait(status)
    seen.put_nowait(None)


async def test_a_watch_shows_the_pod_and_the_end(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    seen: asyncio.Queue[RunStatus | None] = asyncio.Queue()
    watching = asyncio.create_task(statuses(runs, run.run_id, seen))
    assert await seen.get() == RunStatus(RunState.PENDING)
    await runs.submit(run)
    pod = {"podName": "hello-1", "podNonce": "n", "endpoint": "10.0.0.9:8123", "attempt": 1}
    await kube.patch_status(RUNS, namespace, run.run_id, {"state": "running", **pod})
    while (status := await seen.get()) is not None and status.endpoint is None:
        assert status.state is RunState.PENDING
    assert status is not None
    assert isinstance(status.endpoint, RuntimeClient)
    error = {"error": "ValueError", "message": "no"}
    await kube.patch_status(RUNS, namespace, run.run_id, {"state": "error", "error": error})
    last = await seen.get()
    assert last is not None
    assert (last.state, last.endpoint, last.error and last.error.message) == (RunState.ERROR, None, "no")
    assert await seen.get() is None
    await watching


async def test_a_watch_ends_when_the_object_is_deleted_and_hand_written_runs_are_known_by_uid(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    made: Manifest = await kube.create(RUNS, namespace, hand_written_run("mine"))
    seen: asyncio.Queue[RunStatus | None] = asyncio.Queue()
    watching = asyncio.create_task(statuses(runs, made["metadata"]["uid"], seen))
    assert await seen.get() == RunStatus(RunState.PENDING)
    await kube.patch_status(RUNS, namespace, "mine", {"state": "running", "attempt": 1})
    while (status := await seen.get()) is not None and status.attempt == 0:
        pass
    await kube.delete(RUNS, namespace, "mine")
    assert await seen.get() is None
    await watching


async def test_agents_are_unknown_until_they_were_listed(
    kube: KubeClient, namespace: str, db: Database, pods: aiohttp.ClientSession
) -> None:
    world = KubeRuns(Cluster(kube, pods, db, namespace, KEY, now))
    with pytest.raises(Unavailable):
        world.agents()


async def test_an_endpoint_is_a_ready_pod_and_is_waited_for(runs: KubeRuns, kube: KubeClient, namespace: str) -> None:
    await kube.create(AGENTS, namespace, agent("hello"))
    asking = asyncio.create_task(runs.endpoint("hello"))
    pod: dict[str, Any] = {"name": "hello-1", "nonce": "n", "endpoint": "10.0.0.9:8123", "ready": True}
    await kube.patch_status(AGENTS, namespace, "hello", {"graphs": ["chat"], "pods": [pod]})
    assert isinstance(await asking, RuntimeClient)
    [view] = runs.agents()
    assert (view.name, view.graphs, view.ready) == ("hello", ("chat",), False)
    with pytest.raises(NotFound):
        await runs.endpoint("nobody")


async def test_many_requests_for_an_agent_without_a_pod_are_one_mark(
    runs: KubeRuns, kube: KubeClient, namespace: str
) -> None:
    made = await kube.create(AGENTS, namespace, agent("hello"))
    asking = [asyncio.create_task(runs.endpoint("hello")) for _ in range(20)]
    async with aclosing(kube.watch(AGENTS, namespace, resource_version=version_of(made))) as changes:
        there = (await anext(changes)).object
    assert "runyard.dev/wanted-at" in there["metadata"]["annotations"]
    pod: dict[str, Any] = {"name": "hello-1", "nonce": "n", "endpoint": "10.0.0.9:8123", "ready": True}
    await kube.patch_status(AGENTS, namespace, "hello", {"pods": [pod]}, resource_version=version_of(there))
    assert len(await asyncio.gather(*asking)) == 20
    assert made["metadata"]["generation"] == there["metadata"]["generation"]


def version_of(manifest: Manifest) -> str:
    """As the precondition of a write it shows that nobody has written since."""
    version: str = manifest["metadata"]["resourceVersion"]
    return version


async def test_a_pod_that_takes_no_more_runs_still_answers_when_there_is_no_other(
    runs: KubeRuns, kube: KubeClient, namespace: str
) -> None:
    await kube.create(AGENTS, namespace, agent("hello"))
    pod: dict[str, Any] = {"name": "hello-1", "nonce": "n", "endpoint": "10.0.0.9:8123", "ready": True}
    await kube.patch_status(AGENTS, namespace, "hello", {"pods": [pod | {"draining": True}]})
    assert isinstance(await runs.endpoint("hello"), RuntimeClient)


async def test_the_sweep_patches_a_cancel_that_only_the_row_knows(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    run = await stored(db)
    async with runs.watch(run.run_id) as statuses:
        await anext(statuses)
        await runs.submit(run)
        await anext(statuses)
    await request_cancel(db, run.run_id, CancelAction.ROLLBACK, "why")
    await runs.sweep()
    made = await kube.get(RUNS, namespace, run.run_id)
    assert made["spec"]["cancel"] == {"action": "Rollback", "reason": "why"}


async def test_the_sweep_makes_objects_that_a_gateway_left_unmade(
    runs: KubeRuns, kube: KubeClient, namespace: str, db: Database
) -> None:
    old = await stored(db)
    young = await create_run(db, new_run(assistant_id=str(uuid4()), agent_name="hello"), now())
    await runs.sweep()
    names = [m["metadata"]["name"] for m in (await kube.list(RUNS, namespace)).items]
    assert names == [old.run_id]
    assert (await get_run(db, old.run_id)).object_uid is not None
    assert (await get_run(db, young.run_id)).object_uid is None
