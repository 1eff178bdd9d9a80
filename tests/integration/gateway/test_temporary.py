"""Threads of stateless runs go after their end, whatever the run was; others stay."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import pytest
from tests.integration.gateway.world import SETTINGS, World, running_world

LOG: dict[str, list[str]] = {"log": []}
FAILED = {"__error__": {"error": "ValueError", "message": "the second node always fails"}}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that waits just long enough for those who read."""
    settings = replace(SETTINGS, temporary_thread_seconds=1, sweep_seconds=0.1)
    with running_world(tmp_path_factory.mktemp("hasty"), settings) as world:
        yield world


@pytest.fixture
async def http(hasty: World) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hasty.url, headers={"x-api-key": hasty.alice}, timeout=20) as client:
        yield client


async def until_gone(http: httpx.AsyncClient, thread: str) -> None:
    async with asyncio.timeout(10):
        while (await http.get(f"/threads/{thread}")).status_code != 404:
            pass


def thread_in(answer: httpx.Response) -> str:
    return answer.headers["location"].split("/")[2]


@pytest.mark.parametrize(("graph", "want"), [("stub", {"log": ["stub"]}), ("failing", FAILED)])
async def test_a_wait_has_its_answer_and_then_the_thread_goes(
    http: httpx.AsyncClient, graph: str, want: object
) -> None:
    waited = await http.post("/runs/wait", json={"assistant_id": graph, "input": LOG})
    assert waited.json() == want
    thread, run = thread_in(waited), waited.headers["location"].split("/")[4]
    await until_gone(http, thread)
    assert (await http.get(f"/threads/{thread}/runs/{run}")).status_code == 404
    assert (await http.get(f"/threads/{thread}/runs/{run}/join")).json()["__error__"]["error"] == "NotFound"
    again = await http.get(f"/threads/{thread}/runs/{run}/stream", headers={"last-event-id": "-1"})
    assert again.content.startswith(b'event: error\r\ndata: {"error":"NotFound"')


async def test_a_stream_has_its_end_and_then_the_thread_goes(http: httpx.AsyncClient) -> None:
    streamed = await http.post("/runs/stream", json={"assistant_id": "stub", "input": LOG})
    frames = streamed.content.replace(b": heartbeat\r\n\r\n", b"").split(b"\r\n\r\n")
    assert frames[-2].startswith(b"event: end")
    assert b"event: error" not in streamed.content
    await until_gone(http, thread_in(streamed))


async def test_a_run_in_the_background_and_a_cancelled_one_go_too(http: httpx.AsyncClient) -> None:
    made = (await http.post("/runs", json={"assistant_id": "stub", "input": LOG})).json()
    slow = (await http.post("/runs", json={"assistant_id": "slow", "input": {"seconds": 60}})).json()
    await until_gone(http, made["thread_id"])
    path = f"/threads/{slow['thread_id']}"
    assert (await http.get(path)).json()["status"] == "busy"
    assert (await http.post(f"{path}/runs/{slow['run_id']}/cancel")).status_code == 202
    await until_gone(http, slow["thread_id"])


async def test_a_kept_thread_and_one_that_was_made_stay(http: httpx.AsyncClient) -> None:
    body = {"assistant_id": "stub", "input": LOG}
    kept = thread_in(await http.post("/runs/wait", json={**body, "on_completion": "keep"}))
    mine = (await http.post("/threads", json={})).json()["thread_id"]
    await http.post(f"/threads/{mine}/runs/wait", json=body)
    await until_gone(http, thread_in(await http.post("/runs/wait", json=body)))
    for thread in (kept, mine):
        assert (await http.get(f"/threads/{thread}")).json()["values"] == {"log": ["stub"]}
