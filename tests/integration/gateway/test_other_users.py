"""One user's threads, runs and states, asked for by another through every route that there is."""

import uuid
from typing import Any

import httpx
from langgraph_sdk.client import LangGraphClient
from tests.integration.gateway.world import World

SECRET = "alices-secret"
BODIES: dict[str, Any] = {
    "/threads/{thread_id}/state/checkpoint": {"checkpoint": {"checkpoint_ns": ""}},
    "/threads/{thread_id}/state": {"values": {"log": ["bob was here"]}},
    "/threads/{thread_id}/runs": {"assistant_id": "stub", "input": {"log": []}, "if_not_exists": "create"},
    "/threads/{thread_id}/runs/stream": {"assistant_id": "stub", "input": {"log": []}, "if_not_exists": "create"},
    "/threads/{thread_id}/runs/wait": {"assistant_id": "stub", "input": {"log": []}, "if_not_exists": "create"},
}


async def _routes(http: httpx.AsyncClient) -> list[tuple[str, str]]:
    """(method, path) of every route that takes a thread's id."""
    paths = (await http.get("/openapi.json")).json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods if "{thread_id}" in path]


async def test_no_route_shows_or_changes_what_belongs_to_another_user(world: World, sdk: LangGraphClient) -> None:
    thread = (await sdk.threads.create(metadata={"secret": SECRET}))["thread_id"]
    secret: dict[str, Any] = {"log": [SECRET]}
    await sdk.runs.wait(thread, "stub", input=secret, metadata={"secret": SECRET})
    run = (await sdk.runs.list(thread))[0]["run_id"]
    before = await sdk.threads.get(thread)
    checkpoint = (await sdk.threads.get_state(thread))["checkpoint"]["checkpoint_id"]
    async with httpx.AsyncClient(base_url=world.url, headers={"x-api-key": world.bob}, timeout=20) as bob:
        routes = await _routes(bob)
        assert len(routes) >= 15
        for method, path in routes:
            url = path.format(thread_id=thread, run_id=run, checkpoint_id=checkpoint)
            missing = path.format(thread_id=uuid.uuid4(), run_id=run, checkpoint_id=checkpoint)
            options: dict[str, Any] = {"headers": {"last-event-id": "-1"}} if method == "GET" else {}
            if method != "GET":
                options["json"] = BODIES.get(path, {})
            answer = await bob.request(method, url, **options)
            assert SECRET not in answer.text, (method, path)
            assert "bob was here" not in answer.text, (method, path)
            # A thread of another user looks exactly as one that doesn't exist, but where asking for it makes it.
            if not isinstance(options.get("json"), dict) or "if_not_exists" not in options["json"]:
                nowhere = await bob.request(method, missing, **options)
                assert answer.status_code == nowhere.status_code, (method, path)
            else:
                assert answer.status_code in (404, 409), (method, path, answer.text)
        made = await bob.post("/threads", json={"thread_id": thread, "if_exists": "do_nothing"})
        assert (made.status_code, SECRET in made.text) == (409, False)
    assert await sdk.threads.get(thread) == before
    assert len(await sdk.runs.list(thread)) == 1


async def test_a_run_of_another_thread_of_the_same_user_isnt_found_under_this_one(sdk: LangGraphClient) -> None:
    """Ids of two threads mixed in one path name nothing."""
    one, two = [(await sdk.threads.create())["thread_id"] for _ in range(2)]
    run = (await sdk.runs.create(one, "stub", input={"log": []}))["run_id"]
    answer = await sdk.http.get(f"/threads/{two}/runs/{run}/join")
    assert answer["__error__"]["message"].startswith("404")
