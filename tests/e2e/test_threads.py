"""Threads as an app keeps house with them: found again, copied, deleted while an agent is at work."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from tests.e2e.servers import AGENTS, App, Cluster

pytestmark = pytest.mark.timeout(180)


async def begun(app: App, thread: str, graph: str, graph_input: Any) -> str:
    """A run that a pod executes."""
    run = await app.client.runs.create(thread, graph, input=graph_input)
    async for _ in app.client.runs.join_stream(thread, run["run_id"], last_event_id="-1"):
        break
    return str(run["run_id"])


async def test_threads_are_found_by_what_they_are_about_copied_and_deleted(app: App) -> None:
    client, mark = app.client, str(uuid4())
    thread = (await client.threads.create(metadata={"mark": mark}))["thread_id"]
    await client.runs.wait(thread, "stub", input={"log": ["hi"]})
    await client.threads.update(thread, metadata={"title": "first"})
    copy = await client.threads.copy(thread)
    found = await client.threads.search(metadata={"mark": mark}, sort_by="created_at", sort_order="asc")
    assert [one["thread_id"] for one in found] == [thread, copy["thread_id"]]
    assert [one["metadata"]["title"] for one in found] == ["first", "first"]
    assert found[0]["values"] == found[1]["values"]
    assert await client.runs.wait(copy["thread_id"], "stub", input={"log": []}) == {"log": ["hi", "stub", "stub"]}
    await client.threads.delete(thread)
    assert await client.threads.count(metadata={"mark": mark}) == 1


async def test_a_thread_deleted_under_a_run_is_as_good_as_new(app: App) -> None:
    client = app.client
    thread = (await client.threads.create())["thread_id"]
    await begun(app, thread, "slow", {"seconds": 120})
    await client.threads.delete(thread)
    await client.threads.create(thread_id=thread)
    async with asyncio.timeout(20):
        assert await client.runs.wait(thread, "stub", input={"log": ["hi"]}) == {"log": ["hi", "stub"]}
    assert len(await client.runs.list(thread)) == 1


@pytest.mark.cluster
async def test_the_objects_of_a_deleted_threads_runs_go_with_it(cluster: Cluster, cluster_app: App) -> None:
    client = cluster_app.client
    thread = (await client.threads.create())["thread_id"]
    done = await client.runs.create(thread, "stub", input={"log": []})
    await client.runs.join(thread, done["run_id"])
    at_work = await begun(cluster_app, thread, "slow", {"seconds": 120})
    await client.threads.delete(thread)
    for run in (at_work, done["run_id"]):
        cluster.kubectl("wait", f"run/{run}", "-n", AGENTS, "--for=delete", "--timeout=20s")
