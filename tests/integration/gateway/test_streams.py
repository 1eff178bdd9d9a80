"""Event streams on the wire: framing, modes, heartbeats, resuming, leaving."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest
from langgraph_sdk.client import LangGraphClient
from tests.integration.gateway.test_runs import LOG, until

HEARTBEAT = b": heartbeat"


@dataclass(frozen=True)
class Frame:
    event: str
    data: Any
    id: str | None


def frames_of(content: bytes) -> list[Frame]:
    """The frames of a whole stream, each checked for its form; heartbeats are left out."""
    assert content == b"" or content.endswith(b"\r\n\r\n")
    frames = []
    for block in content.split(b"\r\n\r\n")[:-1]:
        if block == HEARTBEAT:
            continue
        event, data, *rest = block.split(b"\r\n")
        assert event.startswith(b"event: ")
        assert data.startswith(b"data: ")
        assert len(rest) < 2
        assert all(line.startswith(b"id: ") for line in rest)
        frames.append(Frame(event[7:].decode(), orjson.loads(data[6:]), rest[0][4:].decode() if rest else None))
    return frames


async def streamed(http: httpx.AsyncClient, thread: str, graph: str, given: Any, **body: Any) -> list[Frame]:
    request = {"assistant_id": graph, "input": given, **body}
    answer = await http.post(f"/threads/{thread}/runs/stream", json=request)
    assert answer.status_code == 200, answer.text
    return frames_of(answer.content)


async def joined(http: httpx.AsyncClient, thread: str, run: str, last: str | None = None, **params: Any) -> list[Frame]:
    headers = {} if last is None else {"last-event-id": last}
    answer = await http.get(f"/threads/{thread}/runs/{run}/stream", headers=headers, params=params)
    assert answer.status_code == 200, answer.text
    return frames_of(answer.content)


async def test_headers_and_frames_of_a_stream(http: httpx.AsyncClient, thread: str) -> None:
    body = {"assistant_id": "stub", "input": LOG, "stream_mode": ["values", "updates"]}
    answer = await http.post(f"/threads/{thread}/runs/stream", json=body)
    frames = frames_of(answer.content)
    run = frames[0].data["run_id"]
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["content-location"] == f"/threads/{thread}/runs/{run}"
    assert answer.headers["location"] == f"/threads/{thread}/runs/{run}/stream"
    assert [f.event for f in frames] == ["metadata", "values", "updates", "values", "end"]
    assert frames[0].data == {"run_id": run, "attempt": 1}
    assert frames[2].data == {"echo": {"log": ["stub"]}}
    assert frames[3].data == {"log": ["stub"]}
    ids = [f.id for f in frames]
    assert all(ids)
    assert len(set(ids)) == len(ids)


async def test_tokens_as_tuples_and_as_the_legacy_trio(http: httpx.AsyncClient, thread: str) -> None:
    question = {"messages": [{"role": "user", "content": "hi"}]}
    tuples = await streamed(http, thread, "tokens", question, stream_mode="messages-tuple")
    chunks = [f.data for f in tuples if f.event == "messages"]
    assert len(chunks) >= 20
    assert chunks[0][0]["type"] == "AIMessageChunk"
    assert chunks[0][1]["langgraph_node"] == "answer"
    trio = await streamed(http, thread, "tokens", question, stream_mode=["messages"])
    names = [f.event for f in trio if f.event.startswith("messages")]
    assert names[0] == "messages/metadata"
    assert set(names[1:]) == {"messages/partial"}
    partials = [f.data[0] for f in trio if f.event == "messages/partial"]
    assert {p["type"] for p in partials} == {"ai"}
    assert partials[-1]["content"] == "tok " * 20
    both = await streamed(http, thread, "tokens", question, stream_mode=["messages", "messages-tuple"])
    assert {f.event for f in both} == {"metadata", "messages", "end"}


async def test_events_of_subgraphs_have_their_namespace(http: httpx.AsyncClient, thread: str) -> None:
    frames = await streamed(http, thread, "nested", LOG, stream_mode=["updates", "custom"], stream_subgraphs=True)
    names = [f.event for f in frames]
    assert any(name.startswith("updates|inner:") for name in names)
    assert any(name.startswith("custom|inner:") for name in names)
    assert "updates" in names
    run = frames[0].data["run_id"]
    only = await joined(http, thread, run, "-1", stream_mode="updates")
    assert [f for f in frames if not f.event.startswith("custom")] == only


async def test_an_error_is_streamed_and_replayed(http: httpx.AsyncClient, thread: str) -> None:
    frames = await streamed(http, thread, "failing", LOG, stream_mode="updates")
    assert [f.event for f in frames][-2:] == ["error", "end"]
    assert frames[-2].data == {"error": "ValueError", "message": "the second node always fails"}
    assert await joined(http, thread, frames[0].data["run_id"], "-1") == frames


async def test_an_interrupt_is_in_the_last_values(http: httpx.AsyncClient, thread: str) -> None:
    question = {"messages": [{"role": "user", "content": "hi"}]}
    frames = await streamed(http, thread, "approval", question, stream_mode=["values", "updates"])
    values = [f.data for f in frames if f.event == "values"]
    [asked] = values[-1]["__interrupt__"]
    assert set(asked) >= {"value", "id"}
    assert [f.event for f in frames][-1] == "end"
    assert any("__interrupt__" in f.data for f in frames if f.event == "updates")


async def test_heartbeats_are_steady_whether_or_not_there_are_events(http: httpx.AsyncClient, thread: str) -> None:
    body = {"assistant_id": "slow", "input": {"seconds": 1.1}, "stream_mode": "custom"}
    noisy = await http.post(f"/threads/{thread}/runs/stream", json=body)
    quiet = await http.post(f"/threads/{thread}/runs/stream", json={**body, "stream_mode": "values"})
    for answer in (noisy, quiet):
        assert answer.content.count(HEARTBEAT) >= 4


async def test_a_finished_run_is_replayed_from_wherever_a_client_was(http: httpx.AsyncClient, thread: str) -> None:
    frames = await streamed(http, thread, "steps", {"log": [], "count": 2}, stream_mode=["values", "updates"])
    run = frames[0].data["run_id"]
    for start in ("-1", "-", "0"):
        assert await joined(http, thread, run, start) == frames
    for position, seen in enumerate(frames[:-1]):
        assert await joined(http, thread, run, seen.id) == frames[position + 1 :]
    assert await joined(http, thread, run, frames[-1].id) == [Frame("end", None, None)]
    assert await joined(http, thread, run) == []


FILTERS: dict[str, Any] = {
    "one": "updates",
    "a JSON array": '["updates"]',
    "repeated": ["updates", "custom"],
    "comma-separated": "updates,custom",
}


@pytest.mark.parametrize("asked", FILTERS.values(), ids=FILTERS.keys())
async def test_a_join_filters_by_modes_in_every_form(http: httpx.AsyncClient, thread: str, asked: Any) -> None:
    frames = await streamed(http, thread, "stub", LOG, stream_mode=["values", "updates"])
    got = await joined(http, thread, frames[0].data["run_id"], "-1", stream_mode=asked)
    assert [f.event for f in got] == ["metadata", "updates", "end"]


async def test_bad_joins(http: httpx.AsyncClient, sdk: LangGraphClient, thread: str) -> None:
    run = await sdk.runs.create(thread, "stub", input=LOG)
    path = f"/threads/{thread}/runs/{run['run_id']}/stream"
    for bad in ("x", "1-x", "1-2-3", "-2", "1-9223372036854775808"):
        answer = await http.get(path, headers={"last-event-id": bad})
        assert (answer.status_code, answer.json()["detail"].startswith("Last-Event-ID")) == (422, True)
    assert (await http.get(path, params={"stream_mode": "x"})).status_code == 422
    assert (await http.get(path, headers={"last-event-id": "999999999999999-9223372036854775807"})).status_code == 200
    assert (await http.get(f"/threads/{thread}/runs/x/stream")).status_code == 422
    [missing] = await joined(http, thread, str(uuid4()))
    assert (missing.event, missing.data["message"][:3]) == ("error", "404")


async def test_a_live_join_gets_only_what_comes_and_a_resumed_one_misses_nothing(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    run = await sdk.runs.create(thread, "slow", input={"seconds": 1.0}, stream_mode="custom")
    await until(sdk, thread, run["run_id"], "running")
    await asyncio.sleep(0.3)
    live, whole = await asyncio.gather(joined(http, thread, run["run_id"]), joined(http, thread, run["run_id"], "-1"))
    assert whole[0].event == "metadata"
    assert [f.data["tick"] for f in whole if f.event == "custom"] == list(range(len(whole) - 2))
    assert live == whole[len(whole) - len(live) :]
    assert 1 < len(live) < len(whole)


async def test_a_join_before_the_start_gets_everything(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    await sdk.runs.create(thread, "slow", input={"seconds": 0.5})
    queued = await sdk.runs.create(thread, "stub", input=LOG, stream_mode="updates")
    frames = await joined(http, thread, queued["run_id"])
    assert [f.event for f in frames] == ["metadata", "updates", "end"]


async def test_a_reader_that_lost_its_connection_goes_on_after_the_last_id(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    run = await sdk.runs.create(thread, "slow", input={"seconds": 1.0}, stream_mode="custom")
    path = f"/threads/{thread}/runs/{run['run_id']}/stream"
    content = b""
    async with http.stream("GET", path, headers={"last-event-id": "-1"}) as answer:
        async for chunk in answer.aiter_raw():
            content += chunk
            if content.count(b"event: custom") >= 5 and content.endswith(b"\r\n\r\n"):
                break
    first = frames_of(content)
    rest = await joined(http, thread, run["run_id"], [f.id for f in first if f.id][-1])
    assert first + rest == await joined(http, thread, run["run_id"], "-1")


@pytest.mark.parametrize("how", ["create", "join"])
async def test_a_reader_that_leaves_takes_its_run_along_when_asked(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str, how: str
) -> None:
    body: dict[str, Any] = {"assistant_id": "slow", "input": {"seconds": 30}, "stream_mode": "custom"}
    if how == "create":
        request = http.stream("POST", f"/threads/{thread}/runs/stream", json={**body, "on_disconnect": "cancel"})
    else:
        run = await sdk.runs.create(thread, "slow", input={"seconds": 30}, stream_mode="custom")
        path = f"/threads/{thread}/runs/{run['run_id']}/stream"
        request = http.stream("GET", path, params={"cancel_on_disconnect": 1})
    async with request as answer:
        async for chunk in answer.aiter_raw():
            if b"event: custom" in chunk:
                break
    left = time.monotonic()
    [only] = await sdk.runs.list(thread)
    assert await until(sdk, thread, only["run_id"], "interrupted") == "interrupted"
    assert time.monotonic() - left < 3
    frames = await joined(http, thread, only["run_id"], "-1")
    assert "error" not in [f.event for f in frames]


async def test_the_sdk_sees_the_end_without_asking_for_the_run(sdk: LangGraphClient, thread: str) -> None:
    made: list[Any] = []
    stream = sdk.runs.stream(thread, "stub", input=LOG, stream_mode="updates", on_run_created=made.append)
    events = [part.event async for part in stream]
    assert events == ["metadata", "updates", "end"]
    assert made[0]["thread_id"] == thread
    rejoined = [p.event async for p in sdk.runs.join_stream(thread, made[0]["run_id"], last_event_id="-1")]
    assert rejoined == events
