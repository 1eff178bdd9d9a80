"""How long a stream is silent when the pod that executes its run is killed while another has a free slot.

Used by __main__.py; changes the number of pods of the test graphs' Agent, and puts it back.
"""

import asyncio
import json
import time

import aiohttp
from hack.bench.load import FRAME_END, Client
from tests.e2e.servers import AGENTS, Cluster

_AGENT = "testgraphs"
_STEPS = 200  # of 100 ms
_BEFORE_KILL = 10


async def silence_after_a_kill(client: Client, cluster: Cluster) -> float:
    """Seconds; a run that emits every 100 ms, its pod killed without a grace period."""
    await asyncio.to_thread(_ask_for, cluster, 2)
    await asyncio.to_thread(_wait_for, cluster, 2)
    thread, run = await client.begin("steps", {"count": _STEPS}, modes=["updates"])
    try:
        async with client.join(thread, run) as answer:
            for _ in range(_BEFORE_KILL):
                await answer.content.readuntil(FRAME_END)
            pod = (await asyncio.to_thread(cluster.get, "run", run))["status"]["podName"]
            kill = ("delete", "pod", pod, "-n", AGENTS, "--grace-period=0", "--force", "--wait=false")
            await asyncio.to_thread(cluster.kubectl, *kill)
            return await _longest_silence(answer.content, seconds=20)
    finally:
        await client.cancel(thread, run)
        await asyncio.to_thread(_ask_for, cluster, 1)


async def _longest_silence(content: aiohttp.StreamReader, *, seconds: float) -> float:
    """Between events, in the next so many seconds; heartbeats are none."""
    longest, last, end = 0.0, time.perf_counter(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        frame = await content.readuntil(FRAME_END)
        if frame.startswith(b":"):
            continue
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def _ask_for(cluster: Cluster, count: int) -> None:
    """So many pods of the agent."""
    patch = json.dumps({"spec": {"replicas": {"min": count, "max": count}}})
    cluster.kubectl("patch", "agent", _AGENT, "-n", AGENTS, "--type=merge", "-p", patch)


def _wait_for(cluster: Cluster, count: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        status = cluster.get("agent", _AGENT)["status"]
        if sum(1 for pod in status.get("pods", ()) if pod.get("ready")) >= count:
            return
        time.sleep(0.5)
    raise RuntimeError(f"agent {_AGENT} didn't get {count} ready pods in 60 s")
