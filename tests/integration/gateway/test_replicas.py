"""Two `runyard-gateway` processes on one Postgres and one API server: whatever one began, the other carries on."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from tests.integration.operator.conftest import place, server
from tests.integration.operator.harness import Place, until
from tests.support.apiserver import ApiServer

from runyard_kube.resources import RUNS

__all__ = ["place", "server"]
pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]
COMMAND = [sys.executable, "-m", "runyard_gateway"]


@dataclass(frozen=True)
class Replica:
    """One gateway, spoken to directly."""

    http: httpx.AsyncClient
    sdk: LangGraphClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(place: Place, api_server: ApiServer) -> AsyncIterator[tuple[Replica, Replica]]:
    await place.agent()
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(replica(place, api_server)) for _ in range(2)]
        yield one, two


@asynccontextmanager
async def replica(place: Place, api_server: ApiServer) -> AsyncIterator[Replica]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "KUBECONFIG": str(api_server.kubeconfig),
        "RUNYARD_DATABASE_URL": place.kubelet.database_url,
        "RUNYARD_AGENTS_NAMESPACE": place.namespace,
        "RUNYARD_TOKEN_KEY_FILE": str(place.folder / "token-key"),
        "RUNYARD_PORT": str(port),
        "RUNYARD_AUTH": "none",
        "RUNYARD_HEARTBEAT_SECONDS": "0.5",
    }
    process = await asyncio.create_subprocess_exec(*COMMAND, env=environment)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=30) as http, get_client(url=url, api_key=None) as sdk:

        async def answers() -> bool:
            try:
                return bool((await http.post("/assistants/search", json={})).json())
            except httpx.ConnectError:
                return False

        try:
            await until(answers, "the gateway answers")
            yield Replica(http, sdk)
        finally:
            process.terminate()
            await process.wait()


async def test_a_stream_that_broke_at_one_goes_on_at_the_other(place: Place, replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    thread, gate = (await one.sdk.threads.create())["thread_id"], place.gate()
    first: list[Any] = []
    async for part in one.sdk.runs.stream(thread, "gated", input={"gate": str(gate)}, stream_mode=["updates"]):
        first.append(part)
        if part.event == "updates":
            break
    run = first[0].data["run_id"]
    rest = two.sdk.runs.join_stream(thread, run, last_event_id=first[-1].id, stream_mode=["updates"])
    live = asyncio.create_task(collected(two.sdk.runs.join_stream(thread, run, last_event_id="-1")))
    gate.touch()
    parts = [*first, *await collected(rest)]
    assert [part.event for part in parts] == ["metadata", "updates", "updates", "end"]
    whole = [(part.event, part.id) for part in parts]
    assert [(part.event, part.id) for part in await live] == whole
    for replica in replicas:
        again = await collected(replica.sdk.runs.join_stream(thread, run, last_event_id="-1"))
        assert [(part.event, part.id) for part in again] == whole


async def collected(parts: AsyncIterator[Any]) -> list[Any]:
    return [part async for part in parts]


async def test_any_replica_reads_joins_and_cancels_what_another_started(
    place: Place, replicas: tuple[Replica, Replica]
) -> None:
    one, two = replicas
    thread, gate = (await one.sdk.threads.create())["thread_id"], place.gate()
    run = await one.sdk.runs.create(thread, "gated", input={"gate": str(gate)})
    waiting = asyncio.create_task(two.sdk.runs.join(thread, run["run_id"]))
    queued = await two.sdk.runs.create(thread, "echo", input={"log": []})
    await place.running(run["run_id"])
    listed = await two.sdk.runs.list(thread)
    assert [found["run_id"] for found in listed] == [queued["run_id"], run["run_id"]]
    answer = await two.http.post(f"/threads/{thread}/runs/{run['run_id']}/cancel?wait=1")
    assert (answer.status_code, answer.json()) == (200, {})
    await waiting
    outcome: Any = await one.sdk.runs.join(thread, queued["run_id"])
    assert outcome["log"][-1] == "said"
    for replica in replicas:
        assert [found["status"] for found in await replica.sdk.runs.list(thread)] == ["success", "interrupted"]
        assert (await replica.sdk.threads.get(thread))["status"] == "idle"


async def test_runs_sent_to_both_keep_one_order(replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    thread = (await one.sdk.threads.create())["thread_id"]
    log: Any = {"log": []}
    sent = [replicas[n % 2].sdk.runs.create(thread, "echo", input=log) for n in range(8)]
    runs = await asyncio.gather(*sent)
    assert len({run["run_id"] for run in runs}) == 8
    await asyncio.gather(*(two.sdk.runs.join(thread, run["run_id"]) for run in runs))
    listed = [await replica.sdk.runs.list(thread, limit=8) for replica in replicas]
    assert listed[0] == listed[1]
    ended = [run["updated_at"] for run in reversed(listed[0])]
    assert ended == sorted(ended)
    values: Any = (await one.sdk.threads.get_state(thread))["values"]
    assert values["log"].count("said") == 8


async def test_a_thread_deleted_at_one_takes_its_runs_along_everywhere(
    place: Place, replicas: tuple[Replica, Replica]
) -> None:
    one, two = replicas
    thread, gate = (await one.sdk.threads.create())["thread_id"], place.gate()
    done = await one.sdk.runs.create(thread, "echo", input={"log": []})
    await one.sdk.runs.join(thread, done["run_id"])
    run = await one.sdk.runs.create(thread, "gated", input={"gate": str(gate)})
    queued = await one.sdk.runs.create(thread, "echo", input={"log": []})
    pod = (await place.running(run["run_id"])).status.pod_name
    reading = asyncio.create_task(one.http.get(f"/threads/{thread}/runs/{run['run_id']}/stream"))
    await two.sdk.threads.delete(thread)
    assert (await reading).text.rstrip().endswith("event: end\r\ndata: null")

    async def gone() -> bool:
        names = {raw["metadata"]["name"] for raw in (await place.kube.list(RUNS, place.namespace)).items}
        return not names & {done["run_id"], run["run_id"], queued["run_id"]}

    await until(gone, "the objects of its runs are gone")
    assert (await one.http.get(f"/threads/{thread}")).status_code == 404
    # The same pod takes runs again, and a thread of the same id is as good as new.
    await one.sdk.threads.create(thread_id=thread)
    again = [await one.sdk.runs.create(thread, "echo", input={"log": []}) for _ in range(2)]
    assert [(await place.ended(made["run_id"])).status.pod_name for made in again] == [pod, pod]
    assert (await two.sdk.threads.get_state(thread))["values"] == {"log": ["said", "said"]}


async def test_a_delayed_run_starts_in_its_time(place: Place, replicas: tuple[Replica, Replica]) -> None:
    one, two = replicas
    thread = (await one.sdk.threads.create())["thread_id"]
    log: Any = {"log": []}
    run = await one.sdk.runs.create(thread, "echo", input=log, after_seconds=2)
    await two.sdk.runs.join(thread, run["run_id"])
    ended = await place.ended(run["run_id"])
    assert ended.spec.not_before is not None
    assert ended.status.start_time is not None
    assert ended.status.start_time >= ended.spec.not_before
    assert ended.spec.not_before >= datetime.fromisoformat(str(run["created_at"])) + timedelta(seconds=2)
