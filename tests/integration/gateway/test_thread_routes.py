"""Threads beyond create and read: search, count, change, copy, delete, prune; runs deleted and cancelled in bulk."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError
from tests.integration.gateway.world import World

HI: Any = {"log": ["hi"]}
HELLO: Any = {"messages": [{"role": "user", "content": "Hello."}]}


async def ended(sdk: LangGraphClient, **metadata: Any) -> str:
    """A thread with one finished run and this metadata."""
    thread = (await sdk.threads.create(metadata=metadata))["thread_id"]
    await sdk.runs.wait(thread, "stub", input=HI)
    return str(thread)


async def begun(sdk: LangGraphClient, thread: str, run: str) -> None:
    """Returns once a pod executes the run: its first event is there."""
    async for _ in sdk.runs.join_stream(thread, run, last_event_id="-1"):
        return


async def status(sdk: LangGraphClient, run: Any) -> str:
    """What the run is once it has ended."""
    await sdk.runs.join(run["thread_id"], run["run_id"])
    return (await sdk.runs.get(run["thread_id"], run["run_id"]))["status"]


async def test_search_finds_by_what_a_thread_is(sdk: LangGraphClient) -> None:
    mark = str(uuid4())
    one, two = await ended(sdk, mark=mark, kind="a"), (await sdk.threads.create(metadata={"mark": mark}))["thread_id"]
    found = await sdk.threads.search(metadata={"mark": mark})
    assert [thread["thread_id"] for thread in found] == [two, one]
    assert found[1] == await sdk.threads.get(one)
    assert await sdk.threads.count(metadata={"mark": mark}) == 2
    older = await sdk.threads.search(metadata={"mark": mark}, sort_by="created_at", sort_order="asc", limit=1)
    assert older[0]["thread_id"] == one
    values: Any = (await sdk.threads.get(one))["values"]
    assert await sdk.threads.count(metadata={"mark": mark}, values={"log": values["log"][:1]}) == 1
    assert [t["thread_id"] for t in await sdk.threads.search(ids=[one, str(uuid4())])] == [one]
    assert await sdk.threads.search(metadata={"mark": mark}, status="busy") == []


async def test_search_tells_the_real_total_and_where_the_next_page_begins(http: httpx.AsyncClient) -> None:
    mark = {"mark": str(uuid4())}
    for _ in range(5):
        await http.post("/threads", json={"metadata": mark})
    pages = {}
    for offset in (0, 2, 4, 6):
        answer = await http.post("/threads/search", json={"metadata": mark, "limit": 2, "offset": offset})
        pages[offset] = (len(answer.json()), *map(answer.headers.get, ("x-pagination-total", "x-pagination-next")))
    assert pages == {0: (2, "5", "2"), 2: (2, "5", "4"), 4: (1, "5", None), 6: (0, "5", None)}


async def test_search_selects_and_extracts(sdk: LangGraphClient) -> None:
    mark = str(uuid4())
    thread = await ended(sdk, mark=mark, deep={"list": [1, {"a": "b"}]})
    extract = {"last": "values.log[-1]", "b": "metadata.deep.list[1].a", "none": "values.log[99].x", "id": "thread_id"}
    [found] = await sdk.threads.search(metadata={"mark": mark}, select=["thread_id", "status"], extract=extract)
    values: Any = (await sdk.threads.get(thread))["values"]
    assert found == {  # type: ignore[comparison-overlap]
        "thread_id": thread,
        "status": "idle",
        "extracted": {"last": values["log"][-1], "b": "b", "none": None, "id": thread},
    }


async def test_metadata_is_merged(http: httpx.AsyncClient, sdk: LangGraphClient, thread: str) -> None:
    changed: Any = await sdk.threads.update(thread, metadata={"title": "one", "n": 1})
    assert changed["metadata"] == {"title": "one", "n": 1}
    await sdk.threads.update(thread, metadata={"title": "two"}, return_minimal=True)
    assert (await sdk.threads.get(thread))["metadata"] == {"title": "two", "n": 1}
    minimal = await http.patch(f"/threads/{thread}", json={"metadata": {}}, headers={"prefer": "return=minimal"})
    assert (minimal.status_code, minimal.content) == (204, b"")
    with pytest.raises(NotFoundError):
        await sdk.threads.update(str(uuid4()), metadata={})


async def test_a_deleted_thread_is_gone_with_its_runs(http: httpx.AsyncClient, sdk: LangGraphClient) -> None:
    thread = await ended(sdk)
    [run] = await sdk.runs.list(thread)
    await sdk.threads.delete(thread)
    paths = [f"/threads/{thread}{rest}" for rest in ("", "/state", "/history", "/runs", f"/runs/{run['run_id']}")]
    assert [(await http.get(path)).status_code for path in paths] == [404] * len(paths)
    with pytest.raises(NotFoundError):
        await sdk.threads.delete(thread)
    again = await sdk.threads.create(thread_id=thread)
    assert (again["values"], await sdk.runs.list(thread), await sdk.threads.get_history(thread)) == (None, [], [])
    assert await sdk.runs.wait(thread, "stub", input=HI)


async def test_deleting_a_thread_stops_the_run_at_work_on_it_and_ends_its_readers(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    running = await sdk.runs.create(thread, "slow", input={"seconds": 30})
    queued = await sdk.runs.create(thread, "stub", input=HI)
    await begun(sdk, thread, running["run_id"])
    async with (
        asyncio.timeout(10),
        http.stream("GET", f"/threads/{thread}/runs/{running['run_id']}/stream") as reader,
        http.stream("GET", f"/threads/{thread}/runs/{queued['run_id']}/join") as waiter,
    ):
        await sdk.threads.delete(thread)
        assert (await reader.aread()).split() == [b"event:", b"end", b"data:", b"null"]
        assert json.loads(await waiter.aread()) == {}
    # The slot is free and the id as good as new.
    await sdk.threads.create(thread_id=thread)
    assert await sdk.runs.wait(thread, "stub", input=HI)
    assert len(await sdk.runs.list(thread)) == 1


async def test_a_copy_goes_its_own_way(sdk: LangGraphClient) -> None:
    source = (await sdk.threads.create(metadata={"kind": "chat"}))["thread_id"]
    await sdk.runs.wait(source, "approval", input=HELLO)
    copy: Any = await sdk.threads.copy(source)  # type: ignore[func-returns-value]
    before: Any = await sdk.threads.get(source)
    assert (before["status"], copy["status"], copy["metadata"]) == ("interrupted", "idle", before["metadata"])
    there, here = await sdk.threads.get_state(copy["thread_id"]), await sdk.threads.get_state(source)
    assert there["values"] == here["values"]
    assert there["tasks"][0]["interrupts"] == here["tasks"][0]["interrupts"]
    histories = [await sdk.threads.get_history(thread) for thread in (source, copy["thread_id"])]
    assert [s["checkpoint"]["checkpoint_id"] for s in histories[0]] == [
        s["checkpoint"]["checkpoint_id"] for s in histories[1]
    ]
    await sdk.runs.wait(copy["thread_id"], "approval", command={"resume": "yes"})
    assert (await sdk.threads.get(copy["thread_id"]))["status"] == "idle"
    assert await sdk.threads.get(source) == before
    with pytest.raises(NotFoundError):
        await sdk.threads.copy(str(uuid4()))


async def test_a_thread_at_work_isnt_copied(sdk: LangGraphClient, thread: str) -> None:
    run = await sdk.runs.create(thread, "slow", input={"seconds": 30})
    await begun(sdk, thread, run["run_id"])
    with pytest.raises(ConflictError):
        await sdk.threads.copy(thread)
    await sdk.runs.cancel(thread, run["run_id"], wait=True)
    await sdk.threads.copy(thread)


async def test_pruning_deletes_what_is_there(sdk: LangGraphClient) -> None:
    ids = [(await sdk.threads.create())["thread_id"] for _ in range(2)]
    assert await sdk.threads.prune([*ids, ids[0], str(uuid4())]) == {"pruned_count": 2}
    assert await sdk.threads.search(ids=ids) == []
    with pytest.raises(UnprocessableEntityError, match="keep_latest"):
        await sdk.threads.prune(ids, strategy="keep_latest")


async def test_a_finished_run_can_be_deleted(sdk: LangGraphClient, thread: str) -> None:
    await sdk.runs.wait(thread, "stub", input=HI)
    before = await sdk.threads.get_state(thread)
    [run] = await sdk.runs.list(thread)
    await sdk.runs.delete(thread, run["run_id"])
    assert await sdk.runs.list(thread) == []
    assert await sdk.threads.get_state(thread) == before
    with pytest.raises(NotFoundError):
        await sdk.runs.delete(thread, run["run_id"])
    at_work = await sdk.runs.create(thread, "slow", input={"seconds": 30})
    with pytest.raises(ConflictError, match="cancel it first"):
        await sdk.runs.delete(thread, at_work["run_id"])
    await sdk.runs.cancel(thread, at_work["run_id"], wait=True)
    await sdk.runs.delete(thread, at_work["run_id"])


async def test_runs_of_a_thread_are_cancelled_together(sdk: LangGraphClient, thread: str) -> None:
    runs = [await sdk.runs.create(thread, "slow", input={"seconds": 30}) for _ in range(3)]
    ids = [run["run_id"] for run in runs]
    await sdk.runs.cancel_many(thread_id=thread, run_ids=ids[1:])
    assert [await status(sdk, run) for run in runs[1:]] == ["interrupted", "interrupted"]
    assert (await sdk.runs.get(thread, ids[0]))["status"] in ("pending", "running")
    with pytest.raises(NotFoundError, match="No matching runs"):
        await sdk.runs.cancel_many(thread_id=thread, run_ids=ids[1:])
    await sdk.runs.cancel_many(thread_id=thread, run_ids=ids, action="rollback")
    assert await sdk.runs.join(thread, ids[0]) == {}
    assert [run["run_id"] for run in await sdk.runs.list(thread)] == ids[:0:-1]


async def test_all_runs_of_a_user_are_cancelled_and_nobody_elses(world: World, sdk: LangGraphClient) -> None:
    async with httpx.AsyncClient(base_url=world.url, headers={"x-api-key": world.bob}, timeout=20) as bob:
        body = {"assistant_id": "slow", "input": {"seconds": 30}, "if_not_exists": "create"}
        path = f"/threads/{uuid4()}/runs"
        his = (await bob.post(path, json=body)).json()["run_id"]
        mine = [
            await sdk.runs.create(str(uuid4()), "slow", input={"seconds": 30}, if_not_exists="create") for _ in "ab"
        ]
        await sdk.runs.cancel_many(status="all")
        assert [await status(sdk, run) for run in mine] == ["interrupted", "interrupted"]
        assert (await bob.get(f"{path}/{his}")).json()["status"] in ("pending", "running")
        assert (await bob.post("/runs/cancel", json={"status": "all"})).status_code == 204
        assert (await bob.get(f"{path}/{his}/join")).status_code == 200


async def test_a_batch_starts_all_or_nothing(http: httpx.AsyncClient, sdk: LangGraphClient) -> None:
    body = {"assistant_id": "stub", "input": {"log": ["hi"]}, "on_completion": "keep"}
    batch: Any = [body, body]
    runs = await sdk.runs.create_batch(batch)
    assert len({run["thread_id"] for run in runs}) == 2
    for run in runs:
        assert await sdk.runs.join(run["thread_id"], run["run_id"])
    before = await sdk.threads.count()
    refused = await http.post("/runs/batch", json=[body, {"assistant_id": "nobody"}])
    assert refused.status_code == 422
    assert await sdk.threads.count() == before


REFUSALS: dict[str, tuple[str, str, Any, int, str]] = {
    "a search of no status": ("POST", "/threads/search", {"status": "x"}, 422, "'idle', 'busy', 'interrupted' or"),
    "a search in no order": ("POST", "/threads/search", {"sort_by": "x"}, 422, "sort_by"),
    "a search for no ids": ("POST", "/threads/search", {"ids": ["x"]}, 422, "ids[0]"),
    "a page of nothing": ("POST", "/threads/search", {"limit": 0}, 422, "limit"),
    "a field that no thread has": ("POST", "/threads/search", {"select": ["head"]}, 422, "select[0]"),
    "a path to nowhere": ("POST", "/threads/search", {"extract": {"a": "head.x"}}, 422, "extract.a: must be a path"),
    "a path that isn't one": ("POST", "/threads/search", {"extract": {"a": "values[x]"}}, 422, "extract.a"),
    "a filter that is no object": ("POST", "/threads/count", {"metadata": [1]}, 422, "metadata"),
    "a ttl": ("PATCH", f"/threads/{uuid4()}", {"ttl": 5}, 422, "ttl: not supported by this server"),
    "a thread with its ttl": ("GET", f"/threads/{uuid4()}?include=ttl", None, 422, "include: ttl: not supported"),
    "a bulk cancel of both kinds": (
        "POST",
        "/runs/cancel",
        {"status": "all", "thread_id": str(uuid4()), "run_ids": [str(uuid4())]},
        422,
        "status can't be given together",
    ),
    "a bulk cancel of nothing": ("POST", "/runs/cancel", {}, 422, "either status"),
    "a bulk cancel of a thread nobody has": (
        "POST",
        "/runs/cancel",
        {"thread_id": str(uuid4()), "run_ids": [str(uuid4())]},
        404,
        "not found",
    ),
    "a bulk cancel of an unknown kind": ("POST", "/runs/cancel?action=x", {"status": "all"}, 422, "action"),
    "an empty batch": ("POST", "/runs/batch", [], 422, "at least 1 item"),
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
async def test_refusals(http: httpx.AsyncClient, case: str) -> None:
    method, path, body, status, words = REFUSALS[case]
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, list(answer.json())) == (status, ["detail"]), answer.text
    assert words in answer.json()["detail"]
