"""Changing everything under load: a new template of an Agent and a new revision of the release cut no run."""

import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.e2e.servers import AGENTS, RELEASE, ROOT, App, Cluster
from tests.e2e.streams import Reading, ended_objects

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

READERS = 12
STEPS, STEP_SECONDS = 60, 0.1  # a run lasts twice as long as its pod may drain
DRAIN_SECONDS = 3


@dataclass
class Load:
    """Readers that stream one run after the other, each on a thread of its own for each run, until told to stop."""

    app: App
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    readings: list[Reading] = field(default_factory=list)

    async def one_after_the_other(self, number: int) -> None:
        """Begins after the reader before it, so that at any moment runs are at every step."""
        await asyncio.sleep(number * STEPS * STEP_SECONDS / READERS)
        while not self.stopping.is_set():
            reading = Reading((await self.app.client.threads.create())["thread_id"])
            self.readings.append(reading)
            await reading.follow(
                self.app.client.runs.stream(
                    reading.thread,
                    "steps",
                    input={"log": [], "count": STEPS},
                    config={"recursion_limit": STEPS + 10},
                    stream_mode=["updates", "values"],
                    stream_resumable=True,
                )
            )


async def test_a_new_template_and_an_upgrade_under_load_cut_no_run(cluster: Cluster, cluster_app: App) -> None:
    before = {pod["metadata"]["name"] for part in ("gateway", "operator") for pod in cluster.pods(part)}
    old_pods = {pod["name"] for pod in cluster.get("agent", "testgraphs")["status"]["pods"]}
    load = Load(cluster_app)
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(READERS):
                group.create_task(load.one_after_the_other(number))
            try:
                await until_streaming(load)
                await asyncio.to_thread(change_everything, cluster, old_pods)
            finally:
                load.stopping.set()
        after = {pod["metadata"]["name"] for part in ("gateway", "operator") for pod in cluster.pods(part)}
        assert not before & after, "every replica is a new one"
        await assert_uncut(cluster, cluster_app, load.readings)
    finally:
        patch_agent(cluster, {"drainSeconds": None, "podTemplate": None})
        cluster.kubectl("wait", "agent/testgraphs", "-n", AGENTS, "--for=condition=Ready", "--timeout=60s")


async def until_streaming(load: Load) -> None:
    def all_stream() -> bool:
        return len(load.readings) >= READERS and all(len(r.parts) > 10 for r in load.readings[:READERS])

    for _ in range(600):
        if all_stream():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("not every reader has its stream after 60 s")


def change_everything(cluster: Cluster, old_pods: set[str]) -> None:
    """A new template for the Agent, then a revision that replaces gateway and operator; returns when all is through."""
    mark = uuid.uuid4().hex
    template = {"env": [{"name": "TEST_REVISION", "value": mark}]}
    patch_agent(cluster, {"drainSeconds": DRAIN_SECONDS, "podTemplate": template})
    annotations = [f"--set-string={part}.podAnnotations.round={mark}" for part in ("gateway", "operator")]
    chart = str(ROOT / "charts" / "runyard")
    cluster.helm("upgrade", RELEASE, chart, "-n", RELEASE, "--reuse-values", *annotations, "--wait", "--timeout=3m")
    deadline = time.monotonic() + 60
    while old_pods & (present := {pod["name"] for pod in cluster.get("agent", "testgraphs")["status"]["pods"]}):
        assert time.monotonic() < deadline, f"pods of the old template are still there: {old_pods & present}"
        time.sleep(1)


def patch_agent(cluster: Cluster, spec: dict[str, Any]) -> None:
    """Merges `spec` into the test graphs' Agent; None removes a field."""
    patch = json.dumps({"spec": spec})
    cluster.kubectl("patch", "agent", "testgraphs", "-n", AGENTS, "--type=merge", "-p", patch)


async def assert_uncut(cluster: Cluster, app: App, readings: list[Reading]) -> None:
    """Each run succeeded with each step once, its stream is whole, and further attempts are a drain's, no crash's."""
    assert len(readings) >= 2 * READERS, "the load went on all the time"
    runs = await ended_objects(cluster, {reading.run for reading in readings})
    moved = 0
    for reading in readings:
        reading.assert_whole()
        assert len(reading.data("updates")) == STEPS, reading.run
        state = await app.client.threads.get_state(reading.thread)
        assert state["values"]["log"] == [f"step {i}" for i in range(STEPS)]
        assert reading.data("values")[-1] == state["values"]
        status = runs[reading.run]["status"]
        assert (status["state"], status.get("failures", 0)) == ("success", 0)
        assert reading.attempts == list(range(1, status["attempt"] + 1))
        moved += status["attempt"] > 1
    assert moved > 0, "runs that last longer than the drain were handed over"
