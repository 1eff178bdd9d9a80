"""Probes, authentication, CORS, request ids, and that every failure has one shape."""

import httpx
import pytest
from tests.integration.gateway.world import World

OPEN = ["/", "/ok", "/ok?check_db=1", "/info", "/docs", "/openapi.json"]


@pytest.mark.parametrize("path", OPEN)
async def test_probes_need_no_key(world: World, path: str) -> None:
    async with httpx.AsyncClient(base_url=world.url) as http:
        assert (await http.get(path)).status_code == 200


async def test_what_probes_say(http: httpx.AsyncClient) -> None:
    assert (await http.get("/ok")).json() == {"ok": True, "services": {}}
    info = (await http.get("/info")).json()
    assert set(info) == {"version", "langgraph_py_version", "flags", "host"}
    assert info["flags"]["assistants"] is True
    assert info["host"]["kind"] == "self-hosted"


async def test_the_openapi_document_shows_bodies_and_errors_are_described(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    assert "/threads/{thread_id}/runs/stream" in paths
    assert "requestBody" in paths["/threads/{thread_id}/runs"]["post"]


KEYS: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, 401),
    "a wrong one": ({"x-api-key": "nope"}, 401),
    "a wrong bearer": ({"authorization": "Bearer nope"}, 401),
    "another scheme": ({"authorization": "Basic key-of-alice"}, 401),
    "a very long one": ({"x-api-key": "k" * 50_000}, 401),
    "one beyond ASCII": ({"x-api-key": "schl\N{LATIN SMALL LETTER U WITH DIAERESIS}ssel"}, 401),
    "one in other letters": ({"x-api-key": "KEY-OF-ALICE"}, 401),
    "a wrong one beside the right bearer": ({"x-api-key": "nope", "authorization": "Bearer key-of-alice"}, 401),
    "the right one": ({"x-api-key": "key-of-alice"}, 200),
    "the right bearer": ({"authorization": "Bearer key-of-alice"}, 200),
}


@pytest.mark.parametrize(("headers", "status"), KEYS.values(), ids=KEYS.keys())
async def test_keys(world: World, headers: dict[str, str], status: int) -> None:
    async with httpx.AsyncClient(base_url=world.url, headers=httpx.Headers(headers, encoding="utf-8")) as http:
        answer = await http.post("/threads", json={})
    assert answer.status_code == status
    assert status == 200 or set(answer.json()) == {"detail"}


async def test_request_ids_are_echoed_or_made(http: httpx.AsyncClient) -> None:
    assert (await http.get("/ok", headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
    made = (await http.get("/threads/x")).headers["x-request-id"]
    assert len(made) == 36
    assert (await http.get("/ok", headers={"x-request-id": "a b"})).headers["x-request-id"] != "a b"


async def test_a_browser_may_call_and_read_the_headers_it_needs(world: World) -> None:
    origin = {"origin": "https://app.example"}
    async with httpx.AsyncClient(base_url=world.url, headers=origin) as http:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key,content-type"}
        preflight = await http.options("/threads", headers=asked)
        refused = await http.post("/threads", json={})
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "*")
    assert "x-api-key" in preflight.headers["access-control-allow-headers"]
    assert refused.status_code == 401
    exposed = {name.strip().lower() for name in refused.headers["access-control-expose-headers"].split(",")}
    assert {"content-location", "location", "x-pagination-total", "x-pagination-next"} <= exposed


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("PUT", "/threads", 405)])
async def test_routes_that_dont_exist(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)
