"""What clients are told while the database doesn't answer: come back, never that something doesn't exist."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.integration.gateway.test_relay import Script
from tests.support.store_rows import NOW

from runyard_gateway.app import Deps, create_app
from runyard_gateway.ports import AgentView
from runyard_gateway.settings import Settings
from runyard_store.database import Database, open_database

THREAD = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e"
DOWN = "postgresql://nobody@127.0.0.1:1/nothing"


class OneAgent(Script):
    def agents(self) -> tuple[AgentView, ...]:
        return (AgentView("a", ("stub",), True, NOW),)


@pytest.fixture
async def down() -> AsyncIterator[Database]:
    database = await open_database(DOWN)
    yield database
    await database.close()


@pytest.fixture
async def http(down: Database) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(auth="none"), Deps(down, OneAgent()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


CALLS = {
    "a new thread": ("POST", "/threads", {}),
    "a thread": ("GET", f"/threads/{THREAD}", None),
    "a state": ("GET", f"/threads/{THREAD}/state", None),
    "a run": ("POST", f"/threads/{THREAD}/runs", {"assistant_id": "stub"}),
    "a stream": ("POST", f"/threads/{THREAD}/runs/stream", {"assistant_id": "stub"}),
    "a stateless wait": ("POST", "/runs/wait", {"assistant_id": "stub"}),
    "a join": ("GET", f"/threads/{THREAD}/runs/{THREAD}/join", None),
    "a stream again": ("GET", f"/threads/{THREAD}/runs/{THREAD}/stream", None),
    "a cancel": ("POST", f"/threads/{THREAD}/runs/{THREAD}/cancel", None),
}


@pytest.mark.parametrize(("method", "path", "body"), CALLS.values(), ids=CALLS.keys())
async def test_a_database_that_is_down_is_503_with_retry_after(
    http: httpx.AsyncClient, method: str, path: str, body: object
) -> None:
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1")
    assert "database" in answer.json()["detail"]


async def test_probes_tell_the_server_from_its_database(http: httpx.AsyncClient) -> None:
    assert (await http.get("/ok")).status_code == 200
    checked = await http.get("/ok", params={"check_db": 1})
    assert (checked.status_code, list(checked.json())) == (500, ["detail"])


async def test_a_key_that_cant_be_looked_up_is_503_not_401(down: Database) -> None:
    app = create_app(Settings(auth="api-key"), Deps(down, OneAgent()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
        assert (await http.post("/threads", headers={"x-api-key": "k"}, json={})).status_code == 503
        assert (await http.post("/threads", json={})).status_code == 401


async def test_a_bug_is_500_in_the_same_form(down: Database) -> None:
    class Broken(Script):
        def agents(self) -> tuple[AgentView, ...]:
            raise KeyError("a bug")

    app = create_app(Settings(auth="none"), Deps(down, Broken()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
        answer = await http.post("/assistants/search", json={}, headers={"origin": "https://a"})
    assert (answer.status_code, answer.json()) == (500, {"detail": "Internal server error"})
    assert answer.headers["access-control-allow-origin"] == "*"
