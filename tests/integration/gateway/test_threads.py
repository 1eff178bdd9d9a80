"""Threads and assistants over HTTP: what is made, what is refused, whose it is."""

from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError
from tests.integration.gateway.world import GRAPHS, World


async def test_a_new_thread(sdk: LangGraphClient) -> None:
    thread: Any = await sdk.threads.create(metadata={"a": 1}, graph_id="stub")
    assert UUID(thread["thread_id"])
    assert (thread["status"], thread["values"], thread["interrupts"], thread["config"]) == ("idle", None, {}, {})
    assert thread["metadata"] == {"a": 1, "graph_id": "stub"}
    assert await sdk.threads.get(thread["thread_id"]) == thread


async def test_an_id_can_be_taken_once(sdk: LangGraphClient) -> None:
    thread_id = str(uuid4())
    await sdk.threads.create(thread_id=thread_id, metadata={"first": True})
    with pytest.raises(ConflictError):
        await sdk.threads.create(thread_id=thread_id)
    again = await sdk.threads.create(thread_id=thread_id, if_exists="do_nothing", metadata={"second": True})
    assert again["metadata"] == {"first": True}


async def test_threads_of_others_dont_exist(world: World, sdk: LangGraphClient, thread: str) -> None:
    await sdk.runs.wait(thread, "stub", input={"log": []})
    [run] = await sdk.runs.list(thread)
    paths = [f"/threads/{thread}{rest}" for rest in ("", "/state", "/history", "/runs", f"/runs/{run['run_id']}")]
    async with httpx.AsyncClient(base_url=world.url, headers={"x-api-key": world.bob}) as bob:
        assert [(await bob.get(path)).status_code for path in paths] == [404] * len(paths)
        body = {"assistant_id": "stub", "input": {"log": []}, "if_not_exists": "create"}
        for kind in ("", "/stream", "/wait"):
            assert (await bob.post(f"/threads/{thread}/runs{kind}", json=body)).status_code == 404
        assert (await bob.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})).status_code == 409
        assert (await bob.post(f"/threads/{thread}/runs/{run['run_id']}/cancel")).status_code == 404
        joined = (await bob.get(f"/threads/{thread}/runs/{run['run_id']}/join")).json()
        assert joined["__error__"]["message"].startswith("404")


REFUSALS: dict[str, tuple[str, str, bytes, int, str]] = {
    "a thread id that is no UUID": ("GET", "/threads/abc", b"", 422, "thread_id: input should be a valid UUID"),
    "a thread nobody has": ("GET", f"/threads/{uuid4()}", b"", 404, "not found"),
    "a new thread's id that is no UUID": ("POST", "/threads", b'{"thread_id": "x"}', 422, "thread_id"),
    "if_exists of another kind": ("POST", "/threads", b'{"if_exists": "x"}', 422, "'raise' or 'do_nothing'"),
    "a NUL in the path": ("GET", f"/threads/{uuid4()}/state/%00", b"", 422, "NUL"),
    "a NUL in the query": ("GET", f"/threads/{uuid4()}/history?before=a%00", b"", 422, "NUL"),
    "a ttl": ("POST", "/threads", b'{"ttl": {"ttl": 5}}', 422, "ttl: not supported by this server"),
    "supersteps": ("POST", "/threads", b'{"supersteps": [{"updates": []}]}', 422, "supersteps: not supported"),
    "metadata that is no object": ("POST", "/threads", b'{"metadata": []}', 422, "metadata: input should be an object"),
    "an unknown field": ("POST", "/threads", b'{"colour": 1}', 422, "colour: this field is not known"),
    "bad JSON": ("POST", "/threads", b"{", 422, "Invalid JSON in request body"),
    "a list for a body": ("POST", "/threads", b"[]", 422, "Request body: input should be an object"),
    "a NUL in metadata": ("POST", "/threads", b'{"metadata": {"a": "\\u0000"}}', 422, "NUL"),
    "a lone surrogate": ("POST", "/threads", b'{"metadata": {"a": "\\ud800"}}', 422, "Invalid JSON"),
    "NaN": ("POST", "/threads", b'{"metadata": {"a": NaN}}', 422, "Invalid JSON"),
    "metadata that is too deep": (
        "POST",
        "/threads",
        b'{"metadata": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
        422,
        "Invalid JSON",
    ),
    "an assistant by name": ("GET", "/assistants/stub", b"", 422, "assistant_id: input should be a valid UUID"),
    "an assistant nobody has": ("GET", f"/assistants/{uuid4()}", b"", 404, "not found"),
    "a limit of zero": ("POST", "/assistants/search", b'{"limit": 0}', 422, "limit: input should be greater"),
    "a filter that costs the database minutes": (
        "POST",
        "/threads/count",
        b'{"metadata": {"a": [' + b"1," * 255 + b"1]}}",
        422,
        "metadata: a filter may have at most 256 values",
    ),
    "an order that doesn't exist": ("POST", "/assistants/search", b'{"sort_by": "x"}', 422, "sort_by"),
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
async def test_refusals(http: httpx.AsyncClient, case: str) -> None:
    method, path, content, status, words = REFUSALS[case]
    answer = await http.request(method, path, content=content)
    assert (answer.status_code, list(answer.json())) == (status, ["detail"]), answer.text
    assert words in answer.json()["detail"]


async def test_bodies_are_json_whatever_their_type_says(http: httpx.AsyncClient) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = await http.post("/threads", content=b'{"metadata": {"a": 1}}', headers=form)
    assert answer.json()["metadata"] == {"a": 1}
    assert (await http.post("/threads")).status_code == 200


async def test_a_fresh_thread_has_an_empty_state_and_no_history(sdk: LangGraphClient, thread: str) -> None:
    state: Any = await sdk.threads.get_state(thread)
    assert (state["values"], state["next"], state["checkpoint"], state["tasks"]) == ({}, [], None, [])
    assert await sdk.threads.get_history(thread) == []
    with pytest.raises(NotFoundError):
        await sdk.threads.get_state(str(uuid4()))


async def test_every_graph_has_an_assistant(http: httpx.AsyncClient, sdk: LangGraphClient) -> None:
    first = await http.post("/assistants/search", json={"limit": 2, "sort_by": "name"})
    assert (first.headers["x-pagination-total"], first.headers["x-pagination-next"]) == (str(len(GRAPHS)), "2")
    rest = await http.post("/assistants/search", json={"limit": 100, "offset": 2, "sort_by": "name"})
    assert "x-pagination-next" not in rest.headers
    found = first.json() + rest.json()
    assert [a["graph_id"] for a in found] == sorted(GRAPHS)
    assert (await http.post("/assistants/count", json={})).json() == len(GRAPHS)
    assert await sdk.assistants.get(found[0]["assistant_id"]) == found[0]
    picked = await http.post("/assistants/search", json={"graph_id": "stub", "select": ["name"]})
    assert picked.json() == [{"name": "stub"}]


async def test_schemas_of_a_graph(sdk: LangGraphClient) -> None:
    [stub] = await sdk.assistants.search(graph_id="stub")
    schemas: Any = await sdk.assistants.get_schemas(stub["assistant_id"])
    assert schemas["graph_id"] == "stub"
    assert "log" in schemas["input_schema"]["properties"]
