"""Two users, and every route that there is: what is one's own is to the other as if it didn't exist.

The routes come from the application's own OpenAPI document, so one that is added later is tested too; the test fails
for a parameter or a body that it doesn't know.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from tests.integration.gateway.world import World

SECRET = "alices-secret"
INTRUDER = "bob was here"
RUN: dict[str, Any] = {"assistant_id": "stub", "input": {"log": [INTRUDER]}}


@dataclass(frozen=True)
class Target:
    """A thread with a finished run, one at work and their state; `assistant` is everybody's. `nowhere`: the same shape,
    of what nobody has."""

    thread: str
    run: str
    at_work: str
    checkpoint: str
    assistant: str

    @cached_property
    def nowhere(self) -> "Target":
        thread, run, at_work, checkpoint = (str(uuid.uuid4()) for _ in range(4))
        return Target(thread, run, at_work, checkpoint, self.assistant)

    def ids(self) -> tuple[str, ...]:
        return (self.thread, self.run, self.at_work, self.checkpoint)

    def path(self, template: str, run: str) -> str:
        """Raises KeyError for a parameter that this test doesn't know: give it Alice's value here."""
        return template.format(
            thread_id=self.thread, run_id=run, checkpoint_id=self.checkpoint, assistant_id=self.assistant
        )

    def blind(self, answer: httpx.Response) -> tuple[int, str]:
        """What an answer says beside these ids."""
        text = answer.text
        for known in self.ids():
            text = text.replace(known, "an id")
        return answer.status_code, text


def bodies(target: Target) -> dict[str, list[Any]]:
    """For each route with a body: what Bob sends to get at Alice's things. A new route needs its line here."""
    creating = [RUN, {**RUN, "if_not_exists": "create", "multitask_strategy": "rollback"}]
    finding: list[Any] = [{}, {"metadata": {"secret": SECRET}}, {"values": {"log": [SECRET]}}, {"status": "busy"}]
    return {
        "POST /threads": [{"thread_id": target.thread}, {"thread_id": target.thread, "if_exists": "do_nothing"}],
        "PATCH /threads/{thread_id}": [{"metadata": {"by": INTRUDER}}],
        "POST /threads/search": [*finding, {"ids": [target.thread]}],
        "POST /threads/count": finding,
        "POST /threads/prune": [{"thread_ids": [target.thread]}],
        "POST /threads/{thread_id}/state": [{"values": {"log": [INTRUDER]}}, {"values": None, "as_node": "echo"}],
        "POST /threads/{thread_id}/state/checkpoint": [
            {"checkpoint": {"checkpoint_ns": ""}},
            {"checkpoint": {"thread_id": target.thread, "checkpoint_id": target.checkpoint}},
        ],
        "POST /threads/{thread_id}/history": [{}, {"checkpoint": {"checkpoint_id": target.checkpoint}}],
        "POST /threads/{thread_id}/runs": creating,
        "POST /threads/{thread_id}/runs/stream": creating,
        "POST /threads/{thread_id}/runs/wait": creating,
        "POST /runs": [{**RUN, "config": {"configurable": {"thread_id": target.thread}}}],
        "POST /runs/stream": [{**RUN, "config": {"configurable": {"thread_id": target.thread}}}],
        "POST /runs/wait": [{**RUN, "config": {"configurable": {"thread_id": target.thread}}}],
        "POST /runs/batch": [[RUN]],
        "POST /runs/cancel": [
            {"status": "all"},
            {"thread_id": target.thread, "run_ids": [target.run, target.at_work]},
        ],
        "POST /assistants/search": [{}],
        "POST /assistants/count": [{}],
    }


@pytest.fixture
async def target(sdk: LangGraphClient) -> Target:
    thread = (await sdk.threads.create(metadata={"secret": SECRET}))["thread_id"]
    secret: dict[str, Any] = {"log": [SECRET]}
    await sdk.runs.wait(thread, "stub", input=secret, metadata={"secret": SECRET})
    [run] = await sdk.runs.list(thread)
    checkpoint = (await sdk.threads.get_state(thread))["checkpoint"]["checkpoint_id"]
    busy: dict[str, Any] = {"seconds": 60, "log": [SECRET]}
    at_work = await sdk.runs.create(thread, "slow", input=busy)
    async for _ in sdk.runs.join_stream(thread, at_work["run_id"], last_event_id="-1"):
        break
    [assistant] = await sdk.assistants.search(graph_id="stub")
    return Target(thread, run["run_id"], at_work["run_id"], str(checkpoint), assistant["assistant_id"])


@dataclass(frozen=True)
class Call:
    """One request of Bob's, and the same about what nobody has."""

    route: str
    method: str
    path: str
    body: Any
    nowhere: str
    nothing: Any


def calls(paths: dict[str, Any], target: Target) -> Iterator[Call]:
    """Every route with every body, for Alice's finished run and for the one at work."""
    nowhere = target.nowhere
    theirs, nobodys = bodies(target), bodies(nowhere)
    for template, methods in paths.items():
        for method, described in methods.items():
            route = f"{method.upper()} {template}"
            given, nothing = (theirs[route], nobodys[route]) if "requestBody" in described else ([None], [None])
            for run in (target.run, target.at_work) if "{run_id}" in template else (target.run,):
                for body, other in zip(given, nothing, strict=True):
                    path = target.path(template, run)
                    there = nowhere.path(template, nowhere.run)
                    yield Call(route, method.upper(), path, body, there, other)


async def test_no_route_shows_or_changes_what_belongs_to_another_user(
    world: World, sdk: LangGraphClient, target: Target
) -> None:
    before = await sdk.threads.get(target.thread)
    runs = await sdk.runs.list(target.thread)
    async with httpx.AsyncClient(base_url=world.url, headers={"x-api-key": world.bob}, timeout=20) as bob:
        paths = (await bob.get("/openapi.json")).json()["paths"]
        asked = list(calls(paths, target))
        assert {call.route for call in asked} >= set(bodies(target)), "a line of `bodies` is about no route"
        for call in asked:
            answer = await ask(bob, call.method, call.path, call.body)
            about = f"{call.route} {call.body}: {answer.status_code} {answer.text[:500]}"
            assert answer.status_code < 500, about
            sent = call.path + json.dumps(call.body)
            unsaid = [word for word in (SECRET, *target.ids()) if word not in sent]
            assert not [word for word in unsaid if word in answer.text + str(answer.headers)], about
            if "{thread_id}" in call.route and "if_not_exists" not in (call.body or ()):
                missing = await ask(bob, call.method, call.nowhere, call.nothing)
                assert target.blind(answer) == target.nowhere.blind(missing), about
        assert (await bob.post("/threads/count", json={"metadata": {"secret": SECRET}})).json() == 0
    assert await sdk.threads.get(target.thread) == before
    assert await sdk.runs.list(target.thread) == runs
    await sdk.runs.cancel(target.thread, target.at_work, wait=True)


async def ask(http: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    return await http.request(method, path, json=body, headers={"last-event-id": "-1"})


async def test_a_run_of_another_thread_of_the_same_user_isnt_found_under_this_one(sdk: LangGraphClient) -> None:
    """Ids of two threads mixed in one path name nothing."""
    one, two = [(await sdk.threads.create())["thread_id"] for _ in range(2)]
    run = (await sdk.runs.create(one, "stub", input=RUN["input"]))["run_id"]
    answer = await sdk.http.get(f"/threads/{two}/runs/{run}/join")
    assert answer["__error__"]["message"].startswith("404")
