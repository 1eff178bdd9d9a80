"""Two operators: one works, the other stands by; when the one is killed the other takes over, and nothing is done
twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.servers import AGENTS, RELEASE, App, Cluster
from tests.e2e.streams import Reading

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

LEASE = f"{RELEASE}-operator"
TAKE_OVER_SECONDS = 10
SLOW, NEW, QUEUED = 4, 10, 3


async def test_a_killed_operator_is_followed_within_seconds_and_nothing_is_dispatched_twice(
    cluster: Cluster, cluster_app: App
) -> None:
    slow = [Reading(await new_thread(cluster_app)) for _ in range(SLOW)]
    streams = [asyncio.create_task(read_slow_run(cluster_app, reading)) for reading in slow]
    await until(lambda: all(reading.run for reading in slow), 30)
    behind = [await enqueue(cluster_app, reading.thread) for reading in slow for _ in range(QUEUED)]
    leader = leading(cluster)
    assert leader in {pod["metadata"]["name"] for pod in cluster.pods("operator")}
    assert len(cluster.pods("operator")) == 2

    await asyncio.to_thread(cluster.tool, "kill-container", leader, "-n", RELEASE)
    meanwhile = [await enqueue(cluster_app, await new_thread(cluster_app)) for _ in range(NEW)]
    await until(lambda: leading(cluster) not in (leader, ""), TAKE_OVER_SECONDS)

    await asyncio.gather(*streams)
    for reading in slow:
        reading.assert_whole()
        assert reading.attempts == [1], "a run that is executed needs no operator"
    runs = [{"thread_id": reading.thread, "run_id": reading.run} for reading in slow] + behind + meanwhile
    for run in runs:
        await cluster_app.client.runs.join(run["thread_id"], run["run_id"])
    ids = ", ".join(f"'{run['run_id']}'" for run in runs)
    rows = cluster.query(f"SELECT status, attempt, count(*) FROM runs WHERE run_id IN ({ids}) GROUP BY 1, 2")
    assert rows == [["success", "1", str(len(runs))]]
    cluster.kubectl("rollout", "status", f"deployment/{LEASE}", "-n", RELEASE, "--timeout=60s")


def leading(cluster: Cluster) -> str:
    """The pod of the operator that works; empty while there is none."""
    holder = cluster.get("lease", LEASE, AGENTS)["spec"].get("holderIdentity") or ""
    return str(holder).partition("_")[0]


async def until(true: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if await asyncio.to_thread(true):
                return
            await asyncio.sleep(0.1)


async def new_thread(app: App) -> str:
    return str((await app.client.threads.create())["thread_id"])


async def enqueue(app: App, thread: str) -> dict[str, Any]:
    run: dict[str, Any] = await app.client.runs.create(
        thread, "stub", input={"log": ["hello"]}, multitask_strategy="enqueue"
    )
    return run


async def read_slow_run(app: App, reading: Reading) -> None:
    await reading.follow(
        app.client.runs.stream(reading.thread, "slow", input={"seconds": 20.0}, stream_mode=["custom", "values"])
    )
