"""Two gateway replicas: any of them serves any stream and any thread, and one of them may crash."""

import asyncio
import itertools
import uuid
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.e2e.servers import RELEASE, App, Cluster, Server, connected
from tests.e2e.streams import Reading, count_reconnects, ended_objects

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

STREAMS = 20
RUNS, THREADS, AT_ONCE = 200, 40, 50


async def test_streams_go_on_by_themselves_when_a_gateway_is_killed(cluster: Cluster, cluster_app: App) -> None:
    reconnects = count_reconnects(cluster_app)
    readings = [
        Reading((await cluster_app.client.threads.create())["thread_id"], uuid.uuid4().hex) for _ in range(STREAMS)
    ]
    tasks = [asyncio.create_task(read_slow_run(cluster_app, reading)) for reading in readings]
    await until_all_stream(readings, tasks)
    victim = cluster.pods("gateway")[0]["metadata"]["name"]
    await asyncio.to_thread(cluster.tool, "kill-container", victim, "-n", RELEASE)
    await asyncio.gather(*tasks)

    [killed] = cluster.get("pod", victim, RELEASE)["status"]["containerStatuses"]
    assert (killed["restartCount"], killed["lastState"]["terminated"]["exitCode"]) == (1, 137)
    assert 0 < len(set(reconnects)) < STREAMS, "streams of the killed replica alone were cut"
    for reading in readings:
        reading.assert_whole()
        assert reading.attempts == [1], "a gateway's crash is none of the run"
        ticks = [data["tick"] for data in reading.data("custom")]
        assert ticks == list(range(len(ticks)))
        state = await cluster_app.client.threads.get_state(reading.thread)
        assert reading.data("values")[-1] == state["values"]
        assert state["values"]["log"] == [f"ticked {len(ticks)}"]
    cluster.kubectl("rollout", "status", f"deployment/{RELEASE}-gateway", "-n", RELEASE, "--timeout=60s")


async def read_slow_run(app: App, reading: Reading) -> None:
    stream = app.client.runs.stream(
        reading.thread, "slow", input={"seconds": 12.0}, stream_mode=["custom", "values"], stream_resumable=True
    )
    await reading.follow(stream)


async def until_all_stream(readings: list[Reading], tasks: list[asyncio.Task[None]]) -> None:
    """Waits until each stream has shown some events; a stream that ended before is told as it ended."""
    async with asyncio.timeout(60):
        while not all(len(reading.parts) > 5 for reading in readings):
            await asyncio.sleep(0.05)
            for task in tasks:
                assert not task.done() or not task.exception(), task.exception()


async def test_two_hundred_runs_at_fifty_at_once_keep_their_threads_order(cluster: Cluster, cluster_app: App) -> None:
    threads = [(await cluster_app.client.threads.create())["thread_id"] for _ in range(THREADS)]
    gate = asyncio.Semaphore(AT_ONCE)
    word_of: dict[str, str] = {}

    async def execute(app: App, thread: str, word: str) -> None:
        async with gate:
            run = await app.client.runs.create(thread, "stub", input={"log": [word]}, multitask_strategy="enqueue")
            word_of[run["run_id"]] = word
            await app.client.runs.join(thread, run["run_id"])

    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(connected(server)) for server in each_gateway(cluster, cluster_app)]
        assert len(apps) == 2
        async with asyncio.TaskGroup() as group:
            for i in range(RUNS):
                group.create_task(execute(apps[i % 2], threads[i * 7 % THREADS], f"word {i}"))

    objects = await ended_objects(cluster, set(word_of))
    assert Counter(o["status"]["state"] for o in objects.values()) == {"success": RUNS}
    assert database_rows(cluster, threads) == {name: row_of(o) for name, o in objects.items()}
    for thread, runs in by_thread(objects).items():
        assert [run["spec"]["sequence"] for run in runs] == list(range(1, RUNS // THREADS + 1))
        for before, after in itertools.pairwise(runs):
            assert before["status"]["completionTime"] <= after["status"]["startTime"], "one after the other"
        state = await cluster_app.client.threads.get_state(thread)
        words = [word_of[run["metadata"]["name"]] for run in runs]
        assert state["values"]["log"] == [entry for word in words for entry in (word, "stub")]


def each_gateway(cluster: Cluster, app: App) -> list[Server]:
    """Every replica by its pod's address, so that each gets its half."""
    return [Server(f"http://{pod['status']['podIP']}:8000", app.headers) for pod in cluster.pods("gateway")]


def row_of(run: dict[str, Any]) -> list[str]:
    """What a Run object says of what its row says too."""
    spec, status = run["spec"], run["status"]
    return [spec["threadId"], str(spec["sequence"]), status["state"], str(status["attempt"]), run["metadata"]["uid"]]


def database_rows(cluster: Cluster, threads: list[str]) -> dict[str, list[str]]:
    names = ", ".join(f"'{thread}'" for thread in threads)
    columns = "run_id, thread_id, sequence, status, attempt, object_uid"
    rows = cluster.query(f"SELECT {columns} FROM runs WHERE thread_id IN ({names})")
    return {row[0]: row[1:] for row in rows}


def by_thread(objects: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Each thread's Runs by their sequence."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in sorted(objects.values(), key=lambda run: int(run["spec"]["sequence"])):
        found[run["spec"]["threadId"]].append(run)
    return found
