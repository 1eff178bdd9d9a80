"""The whole walk of a run: gateway, API server, operator, agent pods and Postgres; only nodes are played."""

import socket
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from tests.integration.operator.conftest import place, server
from tests.integration.operator.harness import KEY, Place

from runyard_cli.embedded.server import served
from runyard_clients.runtime import pooled_http
from runyard_gateway.app import Deps, create_app
from runyard_gateway.cluster.kube_runs import Cluster, KubeRuns
from runyard_gateway.settings import Settings
from runyard_operator.world import utc_now

__all__ = ["place", "server"]
pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.postgres,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(place: Place) -> AsyncIterator[str]:
    """A gateway of the place."""
    async with pooled_http() as http:
        runs = KubeRuns(Cluster(place.kube, http, place.db, place.namespace, KEY.encode(), utc_now))
        runs.start()
        app: Any = create_app(Settings(auth="none", heartbeat_seconds=0.5), Deps(place.db, runs))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with served(app, listener):
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        await runs.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def sdk(url: str) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=url, api_key=None) as client:
        yield client


async def test_a_run_is_streamed_to_its_end_and_its_state_read(place: Place, sdk: LangGraphClient) -> None:
    await place.agent()
    thread = (await sdk.threads.create())["thread_id"]
    stream = sdk.runs.stream(thread, "echo", input={"log": []}, stream_mode=["updates", "values"])
    parts = [part async for part in stream]
    assert [p.event for p in parts] == ["metadata", "values", "updates", "values", "end"]
    run = parts[0].data["run_id"]
    assert (await place.ended(run)).run_id == run
    assert (await sdk.runs.get(thread, run))["status"] == "success"
    assert (await sdk.threads.get_state(thread))["values"] == {"log": ["said"]}
    history = await sdk.threads.get_history(thread, limit=5)
    assert [s["values"] for s in history[:1]] == [{"log": ["said"]}]
    again = [part async for part in sdk.runs.join_stream(thread, run, last_event_id="-1")]
    assert [(p.event, p.id) for p in again] == [(p.event, p.id) for p in parts]
    assert await sdk.runs.wait(thread, "echo", input={"log": []}) == {"log": ["said", "said"]}


async def test_a_stream_goes_on_through_the_loss_of_its_pod(place: Place, sdk: LangGraphClient) -> None:
    await place.agent("fragile")
    gate = place.gate()
    stream = sdk.runs.stream(
        None, "fragile/gated", input={"gate": str(gate)}, stream_mode=["updates", "values"], on_disconnect="cancel"
    )
    parts: list[Any] = []
    async for part in stream:
        parts.append(part)
        if part.event == "updates" and "say" in part.data:
            run = await place.running(parts[0].data["run_id"])
            await place.kubelet.fail(str(run.status.pod_name))
        if part.event == "metadata" and part.data["attempt"] == 2:
            gate.touch()
    attempts = [p.data["attempt"] for p in parts if p.event == "metadata"]
    assert attempts == [1, 2]
    assert (parts[-1].event, parts[-2].data["log"]) == ("end", ["said", "through"])
    numbers = [int(p.id.partition("-")[2]) for p in parts]
    assert numbers == sorted(set(numbers))


async def test_cancel_and_reject_reach_through_the_cluster(place: Place, url: str, sdk: LangGraphClient) -> None:
    await place.agent()
    thread = (await sdk.threads.create())["thread_id"]
    gate = place.gate()
    run = await sdk.runs.create(thread, "gated", input={"gate": str(gate)})
    await place.running(run["run_id"])
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        body = {"assistant_id": "echo", "input": {"log": []}, "multitask_strategy": "reject"}
        assert (await http.post(f"/threads/{thread}/runs", json=body)).status_code == 409
        answer = await http.post(f"/threads/{thread}/runs/{run['run_id']}/cancel?wait=1")
    assert (answer.status_code, answer.json()) == (200, {})
    assert (await sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"


async def test_an_agent_that_cant_start_ends_its_runs_with_its_reason(place: Place, url: str) -> None:
    await place.agent("unpullable", ready=False, image="missing/image:1", pendingDeadlineSeconds=3)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        body = {"assistant_id": "unpullable/agent", "input": {}, "if_not_exists": "create"}
        answer = await http.post(f"/threads/{uuid4()}/runs/stream", json=body)
        waited = await http.post("/runs/wait", json={"assistant_id": "unpullable/agent", "input": {}})
    events = [line for line in answer.text.split("\r\n") if line.startswith("event: ")]
    assert events == ["event: metadata", "event: error", "event: end"]
    assert waited.json()["__error__"]["error"]
    assert "missing/image:1" in waited.json()["__error__"]["message"]
