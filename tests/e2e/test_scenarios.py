"""What an app sees, the same for `runyard dev` and for a cluster: each test runs on both through the official SDK."""

import asyncio
import itertools
import uuid
from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError
from tests.e2e.servers import App


async def new_thread(app: App) -> str:
    thread: dict[str, Any] = await app.client.threads.create()
    return str(thread["thread_id"])


async def read_stream(stream: Any, limit: int | None = None) -> list[Any]:
    """Collects stream parts, all of them or the first `limit`."""
    parts: list[Any] = []
    async for part in stream:
        parts.append(part)
        if limit is not None and len(parts) == limit:
            await stream.aclose()
            break
    return parts


async def until_run(app: App, thread: str, run: str, *statuses: str) -> str:
    """Waits up to 20 s until the run's status is one of those."""
    for _ in range(200):
        status = str((await app.client.runs.get(thread, run))["status"])
        if status in statuses:
            return status
        await asyncio.sleep(0.1)
    raise AssertionError(f"run {run} is {status}, wanted {statuses}")


async def test_a_stream_shows_tokens_before_the_end_and_the_answer_at_the_end(app: App) -> None:
    thread = await new_thread(app)
    question = {"messages": [{"role": "user", "content": "What is 6 times 7?"}]}
    parts = await read_stream(
        app.client.runs.stream(thread, "hello", input=question, stream_mode=["messages-tuple", "values"])
    )
    events = [p.event for p in parts]
    assert events[0] == "metadata"
    assert parts[0].data["attempt"] == 1
    tokens = [i for i, p in enumerate(parts) if p.event == "messages" and p.data[0]["type"] == "AIMessageChunk"]
    assert len(tokens) > 5
    last_values = max(i for i, p in enumerate(parts) if p.event == "values")
    assert tokens[5] < last_values
    messages = parts[last_values].data["messages"]
    assert [m["type"] for m in messages] == ["human", "ai", "tool", "ai"]
    run = await app.client.runs.get(thread, parts[0].data["run_id"])
    assert run["status"] == "success"
    state = await app.client.threads.get_state(thread)
    assert state["values"] == parts[last_values].data
    assert state["next"] == []


async def test_tokens_arrive_while_the_run_still_runs(app: App) -> None:
    thread = await new_thread(app)
    stream = app.client.runs.stream(thread, "slow", input={"seconds": 1.5}, stream_mode="custom")
    seen_running = False
    async for part in stream:
        if part.event == "custom" and not seen_running:
            [run] = await app.client.runs.list(thread)
            seen_running = run["status"] == "running"
            assert seen_running, run["status"]
    assert seen_running


async def test_wait_returns_the_final_values(app: App) -> None:
    thread = await new_thread(app)
    assert await app.client.runs.wait(thread, "stub", input={"log": ["in"]}) == {"log": ["in", "stub"]}


async def test_a_run_needs_no_thread(app: App) -> None:
    assert await app.client.runs.wait(None, "stub", input={"log": []}) == {"log": ["stub"]}


async def test_an_exception_ends_the_run_as_error_with_its_class_and_text(app: App) -> None:
    thread = await new_thread(app)
    parts = await read_stream(app.client.runs.stream(thread, "failing", input={"log": []}, stream_mode="updates"))
    errors = [p.data for p in parts if p.event == "error"]
    assert errors == [{"error": "ValueError", "message": "the second node always fails"}]
    assert (await app.client.threads.get(thread))["status"] == "error"
    body = await app.client.runs.wait(thread, "failing", input={"log": []}, raise_error=False)
    assert body["__error__"]["error"] == "ValueError"


async def test_a_human_answers_in_a_second_run(app: App) -> None:
    thread = await new_thread(app)
    question = {"messages": [{"role": "user", "content": "Delete the old reports"}]}
    parts = await read_stream(app.client.runs.stream(thread, "approval", input=question, stream_mode="values"))
    [interrupt] = (
        parts[-1].data["__interrupt__"] if parts[-1].event == "values" else _last_values(parts)["__interrupt__"]
    )
    assert interrupt["value"]
    first = await app.client.runs.get(thread, parts[0].data["run_id"])
    assert first["status"] == "success"
    waiting = await app.client.threads.get(thread)
    assert waiting["status"] == "interrupted"
    assert [i["id"] for many in waiting["interrupts"].values() for i in many] == [interrupt["id"]]
    final = await app.client.runs.wait(thread, "approval", command={"resume": "yes"})
    assert "__interrupt__" not in final
    thread_now = await app.client.threads.get(thread)
    assert (thread_now["status"], thread_now["interrupts"]) == ("idle", {})


def _last_values(parts: list[Any]) -> dict[str, Any]:
    values: dict[str, Any] = [p.data for p in parts if p.event == "values"][-1]
    return values


async def test_of_twenty_simultaneous_rejects_one_runs_and_nineteen_get_409(app: App) -> None:
    thread = await new_thread(app)

    async def attempt() -> str:
        try:
            run = await app.client.runs.create(thread, "slow", input={"seconds": 3.0}, multitask_strategy="reject")
        except ConflictError:
            return "409"
        return str(run["run_id"])

    outcomes = await asyncio.gather(*(attempt() for _ in range(20)))
    [winner] = [o for o in outcomes if o != "409"]
    assert outcomes.count("409") == 19
    assert len(await app.client.runs.list(thread)) == 1
    assert await until_run(app, thread, winner, "success") == "success"


async def test_enqueued_runs_execute_one_after_the_other_in_order(app: App) -> None:
    thread = await new_thread(app)
    runs = [await app.client.runs.create(thread, "stub", input={"log": [str(i)]}) for i in range(5)]
    for run in runs:
        await app.client.runs.join(thread, run["run_id"])
    state = await app.client.threads.get_state(thread)
    assert state["values"]["log"] == list(itertools.chain.from_iterable([str(i), "stub"] for i in range(5)))


async def test_a_cancelled_run_stops_and_ends_interrupted(app: App) -> None:
    thread = await new_thread(app)
    run = await app.client.runs.create(thread, "slow", input={"seconds": 30})
    await until_run(app, thread, run["run_id"], "running")
    await app.client.runs.cancel(thread, run["run_id"], wait=True)
    assert (await app.client.runs.get(thread, run["run_id"]))["status"] == "interrupted"
    with pytest.raises(NotFoundError):
        await app.client.runs.cancel(thread, run["run_id"])


async def test_a_queued_run_can_be_cancelled_without_touching_the_running_one(app: App) -> None:
    thread = await new_thread(app)
    running = await app.client.runs.create(thread, "slow", input={"seconds": 2})
    queued = await app.client.runs.create(thread, "stub", input={"log": []})
    await app.client.runs.cancel(thread, queued["run_id"])
    assert await until_run(app, thread, queued["run_id"], "interrupted", "success") == "interrupted"
    assert await until_run(app, thread, running["run_id"], "success", "interrupted", "error") == "success"


async def test_a_reader_that_lost_its_connection_goes_on_where_it_was(app: App) -> None:
    thread = await new_thread(app)
    run = await app.client.runs.create(
        thread, "slow", input={"seconds": 2.0}, stream_mode=["custom", "values"], stream_resumable=True
    )
    first = await read_stream(app.client.runs.join_stream(thread, run["run_id"], last_event_id="-1"), limit=8)
    rest = await read_stream(app.client.runs.join_stream(thread, run["run_id"], last_event_id=first[-1].id))
    everything = await read_stream(app.client.runs.join_stream(thread, run["run_id"], last_event_id="-1"))
    ids = [p.id for p in first + rest if p.id]
    assert ids == [p.id for p in everything if p.id]
    assert len(set(ids)) == len(ids)
    ticks = [p.data["tick"] for p in first + rest if p.event == "custom"]
    assert ticks == list(range(len(ticks)))
    assert len(ticks) > 10


async def test_a_reader_that_leaves_takes_its_run_along_when_asked(app: App) -> None:
    thread = await new_thread(app)
    await read_stream(
        app.client.runs.stream(thread, "slow", input={"seconds": 30}, stream_mode="custom", on_disconnect="cancel"),
        limit=3,
    )
    [run] = await app.client.runs.list(thread)
    assert await until_run(app, thread, run["run_id"], "interrupted", "success") == "interrupted"


async def test_a_reader_that_leaves_doesnt_stop_its_run_by_default(app: App) -> None:
    thread = await new_thread(app)
    await read_stream(app.client.runs.stream(thread, "slow", input={"seconds": 1.5}, stream_mode="custom"), limit=3)
    [run] = await app.client.runs.list(thread)
    assert await until_run(app, thread, run["run_id"], "interrupted", "success", "error") == "success"


async def test_a_missing_thread_is_made_when_asked_and_refused_otherwise(app: App) -> None:
    thread = str(uuid.uuid4())
    with pytest.raises(NotFoundError):
        await app.client.runs.create(thread, "stub", input={"log": []})
    assert await app.client.runs.wait(thread, "stub", input={"log": []}, if_not_exists="create") == {"log": ["stub"]}


async def test_history_is_newest_first_and_state_can_be_changed_and_forked(app: App) -> None:
    thread = await new_thread(app)
    await app.client.runs.wait(thread, "steps", input={"log": [], "count": 3})
    history = await app.client.threads.get_history(thread, limit=10)
    assert history[0]["values"]["log"] == ["step 0", "step 1", "step 2"]
    assert [len(s["values"].get("log", [])) for s in history] == [3, 2, 1, 0, 0]
    changed = await app.client.threads.update_state(thread, {"log": ["by hand"]}, as_node="step")
    assert changed["checkpoint"]["thread_id"] == thread
    state = await app.client.threads.get_state(thread)
    assert state["values"]["log"][-1] == "by hand"
    earlier = next(s for s in history if len(s["values"].get("log", [])) == 1)
    forked = await app.client.runs.wait(thread, "steps", input=None, checkpoint=earlier["checkpoint"])
    assert forked["log"] == ["step 0", "step 1", "step 2"]


async def test_a_breakpoint_stops_and_a_run_without_input_goes_on(app: App) -> None:
    thread = await new_thread(app)
    await app.client.runs.wait(thread, "nested", input={"log": []}, interrupt_before=["echo"])
    state = await app.client.threads.get_state(thread)
    assert (state["next"], state["values"]["log"]) == (["echo"], ["child"])
    assert (await app.client.runs.wait(thread, "nested", input=None))["log"] == ["child", "stub"]


async def test_subgraph_events_carry_their_namespace_when_asked(app: App) -> None:
    thread = await new_thread(app)
    parts = await read_stream(
        app.client.runs.stream(
            thread, "nested", input={"log": []}, stream_mode=["updates", "custom"], stream_subgraphs=True
        )
    )
    names = {p.event.partition("|")[0] + ("|" if "|" in p.event else "") for p in parts}
    assert {"updates", "updates|", "custom|"} <= names


async def test_a_graph_that_blocks_its_loop_doesnt_silence_the_server(app: App) -> None:
    blocked = asyncio.create_task(app.client.runs.wait(None, "blocking", input={"seconds": 2.0}))
    await asyncio.sleep(0.5)
    async with httpx.AsyncClient(base_url=app.url, headers=app.headers, timeout=1.5) as http:
        assert (await http.get("/ok")).json()["ok"] is True
        assert (await http.post("/threads", json={})).status_code == 200
    assert (await blocked)["log"] == ["blocked"]


async def test_assistants_are_the_graphs(app: App) -> None:
    found = await app.client.assistants.search(limit=100)
    assert {"hello", "approval", "stub"} <= {a["name"] for a in found}
    [hello] = [a for a in found if a["name"] == "hello"]
    assert hello["metadata"]["created_by"] == "system"
    assert (await app.client.assistants.get(hello["assistant_id"]))["graph_id"] == "hello"
    schemas = await app.client.assistants.get_schemas(hello["assistant_id"])
    assert "messages" in schemas["input_schema"]["properties"]


RUN = {"assistant_id": "stub"}
NEW = str(uuid.UUID(int=7))
BAD_REQUESTS: dict[str, tuple[str, str, Any, int, str]] = {
    "an unknown graph": ("POST", "/threads/{t}/runs", {"assistant_id": "nope"}, 422, "nope"),
    "an assistant id nobody has": ("POST", "/threads/{t}/runs", {"assistant_id": NEW}, 404, "not found"),
    "no assistant": ("POST", "/threads/{t}/runs", {}, 422, "assistant_id"),
    "bad JSON": ("POST", "/threads/{t}/runs", b"{", 422, "Invalid JSON"),
    "an unknown thread": ("POST", f"/threads/{NEW}/runs/stream", RUN, 404, "not found"),
    "a thread id that is no UUID": ("GET", "/threads/abc", None, 422, "UUID"),
    "a wrong type": ("POST", "/threads/{t}/runs", {**RUN, "config": 5}, 422, "config"),
    "an unknown stream mode": ("POST", "/threads/{t}/runs/stream", {**RUN, "stream_mode": "x"}, 422, "stream_mode"),
    "an unknown strategy": ("POST", "/threads/{t}/runs", {**RUN, "multitask_strategy": "x"}, 422, "multitask_strategy"),
    "configurable and context together": (
        "POST",
        "/threads/{t}/runs",
        {**RUN, "config": {"configurable": {"a": 1}}, "context": {"b": 2}},
        400,
        "configurable",
    ),
    "input and command together": (
        "POST",
        "/threads/{t}/runs",
        {**RUN, "input": {"log": []}, "command": {"resume": 1}},
        400,
        "command",
    ),
    "a resume without a thread": ("POST", "/runs/wait", {**RUN, "command": {"resume": 1}}, 400, "thread_id"),
    "an unknown run": ("GET", f"/threads/{{t}}/runs/{NEW}", None, 404, "not found"),
    "a webhook, which this server doesn't send": (
        "POST",
        "/threads/{t}/runs",
        {**RUN, "webhook": "http://127.0.0.1/x"},
        422,
        "webhook",
    ),
    "a cancel action nobody knows": ("POST", f"/threads/{{t}}/runs/{NEW}/cancel?action=x", None, 422, "action"),
}


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=str)
async def test_bad_requests_get_one_plain_sentence(app: App, case: str) -> None:
    method, path, body, status, words = BAD_REQUESTS[case]
    content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    headers = {**app.headers, "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=app.url, headers=headers, timeout=10) as http:
        thread = (await http.post("/threads", json={})).json()["thread_id"]
        answer = await http.request(method, path.replace("{t}", thread), **content)
    assert answer.status_code == status, answer.text
    assert words.lower() in answer.json()["detail"].lower()


async def test_a_browser_may_read_the_headers_clients_need(app: App) -> None:
    page = "http://localhost:3000"  # where an app's own development server is; `runyard dev` lets no other page in
    async with httpx.AsyncClient(base_url=app.url, headers=app.headers) as http:
        preflight = await http.options(
            "/threads",
            headers={"origin": page, "access-control-request-method": "POST"},
        )
        assert preflight.headers["access-control-allow-origin"] in ("*", page)
        answer = await http.get("/info", headers={"origin": page})
        exposed = {h.strip().lower() for h in answer.headers["access-control-expose-headers"].split(",")}
    assert {"content-location", "location", "x-pagination-total", "x-pagination-next"} <= exposed
