"""`runyard dev` on examples/hello through the official SDK: streams, human answers, restarts, crashes."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.cli.conftest import Start

pytestmark = pytest.mark.timeout(240)  # each start imports LangGraph: seconds on a busy machine
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 6 times 7?"}]}
SLOWLY: dict[str, Any] = {"seconds_per_token": 0.15}


async def new_thread(client: Any) -> str:
    return str((await client.threads.create())["thread_id"])


async def texts(client: Any, thread: str) -> list[str]:
    state = await client.threads.get_state(thread)
    return [str(message["content"]) for message in state["values"]["messages"]]


async def test_tokens_and_the_tool_call_arrive_before_the_run_has_ended(start: Start) -> None:
    client = (await start()).client
    thread = await new_thread(client)
    seen: list[str] = []
    status_at_first_token = ""
    async for part in client.runs.stream(thread, "hello", input=QUESTION, stream_mode=["messages-tuple", "values"]):
        if part.event == "messages":
            message: dict[str, Any] = part.data[0]
            seen.append(message["type"] if not message["content"] else str(message["content"]))
            if not status_at_first_token:
                status_at_first_token = (await client.runs.list(thread))[0]["status"]
    assert status_at_first_token == "running"
    assert "42" in seen
    assert "".join(seen).endswith("I only put it into words.AIMessageChunk")
    assert (await texts(client, thread))[-1].startswith("6 times 7 is 42.")


async def test_a_person_answers_in_a_second_run(start: Start) -> None:
    client = (await start()).client
    thread = await new_thread(client)
    request: dict[str, Any] = {"messages": [{"role": "user", "content": "The sea is lovely."}]}
    asked: Any = await client.runs.wait(thread, "approval", input=request)
    assert asked["__interrupt__"][0]["value"]["question"] == "Send this postcard?"
    assert (await client.threads.get(thread))["status"] == "interrupted"
    final: Any = await client.runs.wait(thread, "approval", command={"resume": "yes"})
    assert final["messages"][-1]["content"] == "Sent: Dear friend, The sea is lovely. Yours, Runyard"
    assert (await client.threads.get(thread))["status"] == "idle"


async def test_ctrl_c_ends_cleanly_and_the_next_start_has_all_threads(start: Start) -> None:
    dev = await start()
    thread = await new_thread(dev.client)
    await dev.client.runs.wait(thread, "hello", input=QUESTION)
    before = await texts(dev.client, thread)
    assert await dev.stop(signal.SIGINT) == 0

    again = await start()
    assert again.started["taken_up"] == 0
    assert await texts(again.client, thread) == before
    thanks: dict[str, Any] = {"messages": [{"role": "user", "content": "Thank you"}]}
    await again.client.runs.wait(thread, "hello", input=thanks)
    assert len(await texts(again.client, thread)) == len(before) + 2


async def test_sigterm_ends_it_too(start: Start) -> None:
    dev = await start()
    assert await dev.stop(signal.SIGTERM) == 0


async def test_ctrl_c_during_a_run_hands_it_to_the_next_start(start: Start) -> None:
    dev = await start()
    thread = await new_thread(dev.client)
    run = await dev.client.runs.create(thread, "hello", input=QUESTION, context=SLOWLY)
    await dev.event("run_started")
    assert await dev.stop(signal.SIGINT) == 0
    await goes_on(start, thread, run["run_id"])


async def test_a_killed_process_loses_no_run(start: Start) -> None:
    dev = await start()
    thread = await new_thread(dev.client)
    run = await dev.client.runs.create(thread, "hello", input=QUESTION, context=SLOWLY)
    await dev.event("run_started")
    await asyncio.sleep(0)
    assert await dev.stop(signal.SIGKILL) == -signal.SIGKILL
    await goes_on(start, thread, run["run_id"])


KILLING = """
import os, signal, time
from typing import TypedDict
from langgraph.graph import START, StateGraph

class State(TypedDict):
    text: str

def kill(state: State) -> State:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
    return state

graph = StateGraph(State).add_node("kill", kill).add_edge(START, "kill").compile()
"""


async def test_a_run_that_kills_the_process_ends_after_the_third_time(start: Start, tmp_path: Path) -> None:
    (tmp_path / "killing.py").write_text(KILLING)
    config = tmp_path / "langgraph.json"
    config.write_text('{"dependencies": ["."], "graphs": {"killing": "./killing.py:graph"}}')
    dev = await start(config=config)
    thread = await new_thread(dev.client)
    run = await dev.client.runs.create(thread, "killing", input={"text": "x"})
    for _ in range(2):
        await asyncio.wait_for(dev.process.communicate(), 20)
        dev = await start(config=config)
        assert dev.started["taken_up"] == 1
    await asyncio.wait_for(dev.process.communicate(), 20)

    dev = await start(config=config)
    ended = await dev.event("run_ended")
    assert (ended["run"], ended["state"], ended["error"]["error"]) == (run["run_id"], "error", "TooManyFailures")
    shown: Any = await dev.client.threads.get(thread)
    assert (shown["status"], "killed 3 times" in shown["error"]["message"]) == ("error", True)


async def goes_on(start: Start, thread: str, run_id: str) -> None:
    """A new start takes the run up as attempt 2 and brings it to its end, each message once."""
    dev = await start()
    assert dev.started["taken_up"] == 1
    joined: Any = await dev.client.runs.join(thread, run_id)
    assert [message["type"] for message in joined["messages"]] == ["human", "ai", "tool", "ai"]
    assert joined["messages"][-1]["content"].startswith("6 times 7 is 42.")
    ended = await dev.event("run_ended")
    assert (ended["run"], ended["state"]) == (run_id, "success")
    assert (await dev.client.runs.get(thread, run_id))["status"] == "success"


async def test_a_cancelled_run_stops_and_the_next_one_of_its_thread_goes(start: Start) -> None:
    dev = await start()
    thread = await new_thread(dev.client)
    run = await dev.client.runs.create(thread, "hello", input=QUESTION, context={"seconds_per_token": 5})
    queued = await dev.client.runs.create(thread, "hello", input=QUESTION)
    await dev.event("run_started")
    await dev.client.runs.cancel(thread, run["run_id"], wait=True)
    assert (await dev.client.runs.get(thread, run["run_id"]))["status"] == "interrupted"
    final: Any = await dev.client.runs.join(thread, queued["run_id"])
    assert "42" in final["messages"][-1]["content"]


async def test_more_runs_than_slots_all_end(start: Start) -> None:
    client = (await start("--slots", "2")).client
    ended: list[Any] = await asyncio.gather(*(client.runs.wait(None, "hello", input=QUESTION) for _ in range(8)))
    assert all("42" in values["messages"][-1]["content"] for values in ended)


async def test_who_may_ask(start: Start, tmp_path: Path) -> None:
    closed = await start()
    options = ("--host", "0.0.0.0", "--allow-host", "runyard.test", "--allow-origin", "https://app.test")
    opened = await start(*options, state=tmp_path / "other")
    url = opened.url.replace("0.0.0.0", "127.0.0.1")
    token = {"x-api-key": (tmp_path / "other" / "token").read_text().strip()}
    async with httpx.AsyncClient(timeout=15) as http:
        refused = await http.get(f"{closed.url}/ok", headers={"host": "evil.example"})
        assert (refused.status_code, "evil.example" in refused.json()["detail"]) == (403, True)
        assert (await http.get(f"{closed.url}/ok")).status_code == 200
        assert (await http.post(f"{closed.url}/threads", content=b"{}")).status_code == 415
        assert (await http.get(f"{url}/ok", headers={"host": "runyard.test"})).status_code == 200
        assert (await http.post(f"{url}/threads", json={})).status_code == 401
        asked = {"origin": "https://app.test", "access-control-request-method": "POST"}
        preflight = await http.options(f"{url}/threads", headers=asked)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "*")
        made = await http.post(f"{url}/threads", json={}, headers=token | {"origin": "https://app.test"})
        assert made.status_code == 200
        assert (await http.post(f"{url}/threads", json={}, headers={**token, "origin": "null"})).status_code == 403
        assert (await http.get(f"{url}/ok", headers={"host": "evil.example"})).status_code == 403


async def test_the_sdk_sends_the_token(start: Start) -> None:
    client = (await start("--token")).client
    final: Any = await client.runs.wait(None, "hello", input=QUESTION)
    assert "42" in final["messages"][-1]["content"]


@pytest.mark.parametrize("folder", ["long" * 20 + "/" + "path" * 20, "what? 100%41 #1"])
async def test_a_state_folder_with_an_unusual_path_works(start: Start, tmp_path: Path, folder: str) -> None:
    client = (await start(state=tmp_path / folder)).client
    final: Any = await client.runs.wait(None, "hello", input=QUESTION)
    assert "42" in final["messages"][-1]["content"]
    assert (tmp_path / folder / "runyard.db").exists()
