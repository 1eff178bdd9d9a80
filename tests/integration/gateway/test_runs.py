"""Runs through the official SDK and plain HTTP: create, wait, join, list, cancel, human in the loop, state."""

import asyncio
import re
import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError

LOG: dict[str, Any] = {"log": []}


async def until(sdk: LangGraphClient, thread: str, run: str, *statuses: str) -> str:
    """Waits at most 10 s for one of the statuses."""
    async with asyncio.timeout(10):
        while True:
            status = str((await sdk.runs.get(thread, run))["status"])
            if status in statuses:
                return status
            await asyncio.sleep(0.02)


async def test_a_run_is_answered_with_its_row_and_its_place(http: httpx.AsyncClient, thread: str) -> None:
    body = {"assistant_id": "stub", "input": LOG, "metadata": {"a": 1}, "context": {"b": 2}, "stream_resumable": False}
    answer = await http.post(f"/threads/{thread}/runs", json=body)
    run = answer.json()
    assert answer.status_code == 200
    assert answer.headers["content-location"] == f"/threads/{thread}/runs/{run['run_id']}"
    assert UUID(run["run_id"]).version == 7
    assert (run["thread_id"], run["status"], run["metadata"]) == (thread, "pending", {"a": 1})
    assert run["multitask_strategy"] == "enqueue"
    assert run["kwargs"]["context"] == {"b": 2}
    assert run["kwargs"]["resumable"] is True
    joined = await http.get(f"/threads/{thread}/runs/{run['run_id']}/join")
    assert joined.json() == {"log": ["stub"]}
    after = (await http.get(f"/threads/{thread}")).json()
    assert after["metadata"] == {"graph_id": "stub", "assistant_id": run["assistant_id"]}


async def test_wait_keeps_the_connection_alive_and_names_where_to_join(http: httpx.AsyncClient, thread: str) -> None:
    body = {"assistant_id": "slow", "input": {"seconds": 0.7}}
    answer = await http.post(f"/threads/{thread}/runs/wait", json=body)
    place = re.fullmatch(rf"/threads/{thread}/runs/([0-9a-f-]+)", answer.headers["content-location"])
    assert place is not None
    assert answer.headers["location"] == f"{place[0]}/join"
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.startswith(b"\n\n")
    assert "ticked" in answer.json()["log"][0]


async def test_stateless_runs_answer_with_the_places_clients_read(http: httpx.AsyncClient) -> None:
    body = {"assistant_id": "stub", "input": LOG}
    made = await http.post("/runs", json=body)
    assert made.headers["content-location"] == f"/runs/{made.json()['run_id']}"
    waited = await http.post("/runs/wait", json=body)
    assert waited.json() == {"log": ["stub"]}
    assert re.fullmatch(r"/threads/[0-9a-f-]+/runs/[0-9a-f-]+", waited.headers["content-location"])
    streamed = await http.post("/runs/stream", json=body)
    assert re.fullmatch(r"/runs/[0-9a-f-]+", streamed.headers["content-location"])
    assert re.fullmatch(r"/threads/[0-9a-f-]+/runs/[0-9a-f-]+/stream", streamed.headers["location"])
    again = await http.get(streamed.headers["location"], headers={"last-event-id": "-1"})
    assert again.content.replace(b": heartbeat\r\n\r\n", b"") == streamed.content.replace(b": heartbeat\r\n\r\n", b"")


async def test_a_kept_stateless_thread_stays(sdk: LangGraphClient, http: httpx.AsyncClient) -> None:
    body = {"assistant_id": "stub", "input": LOG, "on_completion": "keep"}
    waited = await http.post("/runs/wait", json=body)
    thread = waited.headers["content-location"].split("/")[2]
    assert (await sdk.threads.get(thread))["values"] == {"log": ["stub"]}


async def test_runs_are_listed_newest_first_by_page_and_status(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    made = [(await sdk.runs.create(thread, "stub", input=LOG))["run_id"] for _ in range(3)]
    await sdk.runs.join(thread, made[-1])
    first = await http.get(f"/threads/{thread}/runs", params={"limit": 2})
    assert [r["run_id"] for r in first.json()] == [made[2], made[1]]
    assert (first.headers["x-pagination-total"], first.headers["x-pagination-next"]) == ("3", "2")
    rest = await http.get(f"/threads/{thread}/runs", params={"offset": 2, "select": ["run_id", "status"]})
    assert rest.json() == [{"run_id": made[0], "status": "success"}]
    assert (await http.get(f"/threads/{thread}/runs", params={"status": "error"})).json() == []
    assert (await http.get(f"/threads/{thread}/runs", params={"status": "x"})).status_code == 422
    assert (await http.get(f"/threads/{uuid4()}/runs")).status_code == 404


async def test_a_failure_is_an_error_in_the_body_not_in_the_status(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    want = {"error": "ValueError", "message": "the second node always fails"}
    waited = await http.post(f"/threads/{thread}/runs/wait", json={"assistant_id": "failing", "input": LOG})
    assert (waited.status_code, waited.json()) == (200, {"__error__": want})
    run = waited.headers["content-location"].rpartition("/")[2]
    assert (await http.get(f"/threads/{thread}/runs/{run}/join")).json() == {"__error__": want}
    state: Any = await sdk.threads.get(thread)
    assert (state["status"], state["error"]) == ("error", want)


async def test_joining_a_run_that_doesnt_exist_is_an_error_in_the_body(http: httpx.AsyncClient, thread: str) -> None:
    answer = await http.get(f"/threads/{thread}/runs/{uuid4()}/join")
    assert answer.status_code == 200
    assert answer.json()["__error__"]["message"].startswith("404")


async def test_of_simultaneous_rejects_one_is_admitted(sdk: LangGraphClient, thread: str) -> None:
    async def attempt() -> str:
        try:
            run = await sdk.runs.create(thread, "slow", input={"seconds": 1}, multitask_strategy="reject")
        except ConflictError as error:
            return str(error)
        return "admitted " + run["run_id"]

    outcomes = await asyncio.gather(*(attempt() for _ in range(10)))
    refused = [text for text in outcomes if not text.startswith("admitted")]
    assert len(refused) == 9
    assert "Thread is already running a task. Wait for it to finish or choose a different" in refused[0]


async def test_a_missing_thread_is_made_only_when_asked(sdk: LangGraphClient) -> None:
    thread = str(uuid4())
    with pytest.raises(NotFoundError, match=r"Thread or assistant not found\."):
        await sdk.runs.create(thread, "stub", input=LOG)
    assert await sdk.runs.wait(thread, "stub", input=LOG, if_not_exists="create") == {"log": ["stub"]}


async def test_cancel_answers_at_once_or_when_the_run_has_stopped(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    run = await sdk.runs.create(thread, "slow", input={"seconds": 30})
    path = f"/threads/{thread}/runs/{run['run_id']}/cancel"
    await until(sdk, thread, run["run_id"], "running")
    queued = await sdk.runs.create(thread, "stub", input=LOG)
    now = await http.post(f"/threads/{thread}/runs/{queued['run_id']}/cancel", params={"reason": "no need"})
    assert (now.status_code, now.content) == (202, b"")
    assert await until(sdk, thread, queued["run_id"], "interrupted") == "interrupted"
    waited = await http.post(path, params={"wait": 1, "action": "interrupt"})
    assert (waited.status_code, waited.json()) == (200, {})
    assert (await sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"
    gone = await http.post(path)
    assert (gone.status_code, gone.json()["detail"].startswith("No matching runs to cancel")) == (404, True)
    assert (await http.post(path, params={"action": "x"})).status_code == 422


async def test_a_rollback_removes_the_run(http: httpx.AsyncClient, sdk: LangGraphClient, thread: str) -> None:
    before, undone = {**LOG, "log": ["before"]}, {**LOG, "log": ["undone"], "count": 100}
    await sdk.runs.wait(thread, "stub", input=before)
    run = await sdk.runs.create(thread, "steps", input=undone)
    await until(sdk, thread, run["run_id"], "running")
    answer = await http.post(
        f"/threads/{thread}/runs/{run['run_id']}/cancel", params={"wait": "true", "action": "rollback"}
    )
    assert (answer.status_code, answer.json()) == (200, {})
    with pytest.raises(NotFoundError):
        await sdk.runs.get(thread, run["run_id"])
    state: Any = await sdk.threads.get_state(thread)
    assert state["values"] == {"log": ["before", "stub"]}
    assert (await sdk.threads.get(thread))["status"] == "idle"


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
async def test_double_texting_stops_the_run_before(sdk: LangGraphClient, thread: str, strategy: Any) -> None:
    first = await sdk.runs.create(thread, "slow", input={"seconds": 30})
    await until(sdk, thread, first["run_id"], "running")
    values: Any = await sdk.runs.wait(thread, "stub", input=LOG, multitask_strategy=strategy)
    assert values == {"log": ["stub"], **({"seconds": 30} if strategy == "interrupt" else {})}
    runs = [r["status"] for r in await sdk.runs.list(thread)]
    assert runs == (["success", "interrupted"] if strategy == "interrupt" else ["success"])


async def test_a_client_that_leaves_a_wait_takes_the_run_along_when_asked(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    body = {"assistant_id": "slow", "input": {"seconds": 30}, "on_disconnect": "cancel"}
    async with http.stream("POST", f"/threads/{thread}/runs/wait", json=body) as answer:
        run = answer.headers["content-location"].rpartition("/")[2]
        await until(sdk, thread, run, "running")
    left = time.monotonic()
    assert await until(sdk, thread, run, "interrupted") == "interrupted"
    assert time.monotonic() - left < 3


async def test_a_human_answers_in_a_second_run(sdk: LangGraphClient, http: httpx.AsyncClient, thread: str) -> None:
    message: Any = {"messages": [{"role": "user", "content": "Hello."}]}
    values: Any = await sdk.runs.wait(thread, "approval", input=message)
    [asked] = values["__interrupt__"]
    assert asked["value"]["question"] == "Send this postcard?"
    waiting = await sdk.threads.get(thread)
    assert waiting["status"] == "interrupted"
    assert [i["id"] for many in waiting["interrupts"].values() for i in many] == [asked["id"]]
    state: Any = await sdk.threads.get_state(thread)
    assert state["next"] == ["ask"]
    assert [i["id"] for i in state["interrupts"]] == [asked["id"]]
    answered: Any = await sdk.runs.wait(thread, "approval", command={"resume": "yes"})
    assert answered["messages"][-1]["content"].startswith("Sent: Dear friend")
    assert (await sdk.threads.get(thread))["status"] == "idle"


async def test_state_is_read_at_checkpoints_changed_and_forked(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    await sdk.runs.wait(thread, "steps", input={"log": [], "count": 2})
    [newest] = (await http.post(f"/threads/{thread}/history", json={})).json()
    state: Any = await sdk.threads.get_state(thread)
    assert newest == state
    assert state["values"]["log"] == ["step 0", "step 1"]
    assert state["checkpoint"]["thread_id"] == thread
    assert state["checkpoint_id"] == state["checkpoint"]["checkpoint_id"]
    history: Any = await sdk.threads.get_history(thread, limit=10)
    assert history[0] == state
    older = history[1]
    assert state["parent_checkpoint"]["checkpoint_id"] == older["checkpoint"]["checkpoint_id"]
    for asked in (older["checkpoint"]["checkpoint_id"], older["checkpoint"]):
        found: Any = await (
            sdk.threads.get_state(thread, checkpoint_id=asked)
            if isinstance(asked, str)
            else sdk.threads.get_state(thread, checkpoint=asked)
        )
        assert found["values"] == older["values"]
    for before in (state["checkpoint_id"], state["checkpoint"], {"configurable": state["checkpoint"]}):
        answer = await http.post(f"/threads/{thread}/history", json={"limit": 1, "before": before})
        assert answer.json()[0]["checkpoint"] == older["checkpoint"]
    listed = await http.get(f"/threads/{thread}/history", params={"limit": 2, "before": state["checkpoint_id"]})
    assert listed.json()[0]["checkpoint"] == older["checkpoint"]
    changed = await sdk.threads.update_state(thread, {"log": ["by hand"]}, as_node="step")
    assert set(changed) == {"checkpoint", "configurable", "checkpoint_id"}
    after: Any = await sdk.threads.get_state(thread)
    assert after["values"]["log"] == ["step 0", "step 1", "by hand"]
    shown: Any = await sdk.threads.get(thread)
    assert shown["values"]["log"] == ["step 0", "step 1", "by hand"]


STATE_REFUSALS: dict[str, tuple[str, Any, int, str]] = {
    "values that are a list": ("/state", {"values": [1]}, 400, "values"),
    "a node that doesn't exist": ("/state", {"values": {"log": ["x"]}, "as_node": "nope"}, 400, "nope"),
    "a checkpoint of the wrong type": ("/state/checkpoint", {"checkpoint": 5}, 422, "checkpoint"),
    "no checkpoint": ("/state/checkpoint", {}, 422, "checkpoint: this field is required"),
    "a history of nothing": ("/history", {"limit": 0}, 422, "limit"),
    "a history of too much": ("/history", {"limit": 1001}, 422, "limit"),
    "before that names no checkpoint": ("/history", {"before": {"a": 1}}, 422, "before"),
}


@pytest.mark.parametrize("case", STATE_REFUSALS, ids=str)
async def test_refusals_of_state_calls(http: httpx.AsyncClient, sdk: LangGraphClient, thread: str, case: str) -> None:
    await sdk.runs.wait(thread, "stub", input=LOG)
    path, body, status, words = STATE_REFUSALS[case]
    answer = await http.post(f"/threads/{thread}{path}", json=body)
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text


async def test_a_state_that_doesnt_exist_is_not_found(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    await sdk.runs.wait(thread, "stub", input=LOG)
    assert (await http.get(f"/threads/{thread}/state/{uuid4()}")).status_code == 404


async def test_a_thread_that_no_graph_has_touched_cant_be_updated_unless_it_names_one(
    http: httpx.AsyncClient, sdk: LangGraphClient, thread: str
) -> None:
    answer = await http.post(f"/threads/{thread}/state", json={"values": {"log": ["x"]}})
    assert (answer.status_code, "has no graph yet" in answer.json()["detail"]) == (400, True)
    named = (await sdk.threads.create(graph_id="stub"))["thread_id"]
    await sdk.threads.update_state(named, {"log": ["x"]}, as_node="echo")
    assert (await sdk.threads.get_state(named))["values"] == {"log": ["x"]}


async def test_a_delayed_run_starts_when_its_time_has_come_and_holds_up_those_behind_it(
    sdk: LangGraphClient, thread: str
) -> None:
    delayed = await sdk.runs.create(thread, "stub", input=LOG, after_seconds=1)
    behind = await sdk.runs.create(thread, "stub", input=LOG)
    assert (await sdk.threads.get(thread))["status"] == "busy"
    await asyncio.gather(*(sdk.runs.join(thread, run["run_id"]) for run in (delayed, behind)))
    first, second = [await sdk.runs.get(thread, run["run_id"]) for run in (delayed, behind)]
    assert (first["status"], second["status"]) == ("success", "success")
    waited = datetime.fromisoformat(str(first["updated_at"])) - datetime.fromisoformat(str(delayed["created_at"]))
    assert waited >= timedelta(seconds=1)
    assert str(second["updated_at"]) > str(first["updated_at"])


async def test_a_delayed_run_is_cancelled_before_it_starts(sdk: LangGraphClient, thread: str) -> None:
    delayed = await sdk.runs.create(thread, "stub", input=LOG, after_seconds=3600)
    assert await sdk.runs.wait(thread, "stub", input=LOG, multitask_strategy="rollback") == {"log": ["stub"]}
    with pytest.raises(NotFoundError):
        await sdk.runs.get(thread, delayed["run_id"])
    again = await sdk.runs.create(thread, "stub", input=LOG, after_seconds=3600)
    await sdk.runs.cancel(thread, again["run_id"], wait=True)
    assert (await sdk.runs.get(thread, again["run_id"]))["status"] == "interrupted"
    assert (await sdk.threads.get(thread))["status"] == "idle"


async def test_simultaneous_updates_of_a_state_all_count_and_a_run_keeps_them_out(
    sdk: LangGraphClient, thread: str
) -> None:
    await sdk.runs.wait(thread, "stub", input=LOG)
    names = {f"update {n}" for n in range(20)}
    await asyncio.gather(*(sdk.threads.update_state(thread, {"log": [name]}, as_node="echo") for name in names))
    state: Any = await sdk.threads.get_state(thread)
    assert names <= set(state["values"]["log"])
    run = await sdk.runs.create(thread, "slow", input={"seconds": 30})
    await until(sdk, thread, run["run_id"], "running")
    with pytest.raises(ConflictError, match="when its run has ended"):
        await sdk.threads.update_state(thread, {"log": ["too late"]})
    await sdk.runs.cancel(thread, run["run_id"], wait=True)


REFUSALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "an unknown graph": ({"assistant_id": "nope"}, 422, "Graph 'nope' not found. Expected one of: approval,"),
    "an assistant nobody has": ({"assistant_id": str(uuid4())}, 404, "Thread or assistant not found."),
    "no assistant": ({"assistant_id": None}, 422, "assistant_id"),
    "input beside command": ({"input": {}, "command": {"resume": 1}}, 400, "input and command"),
    "configurable beside context": (
        {"config": {"configurable": {"a": 1}}, "context": {"b": 1}},
        400,
        "Cannot specify both configurable and context",
    ),
    "a webhook": ({"webhook": "https://example.com"}, 422, "webhook: not supported by this server"),
    "a delay that is none": ({"after_seconds": -1}, 422, "after_seconds: input should be greater than or equal to 0"),
    "events": ({"stream_mode": ["events"]}, 422, "not supported by this server"),
    "lifecycle": ({"stream_mode": ["lifecycle"]}, 422, "stream_mode[0]"),
    "an unknown strategy": ({"multitask_strategy": "x"}, 422, "'enqueue', 'reject', 'interrupt' or 'rollback'"),
    "an unknown field": ({"colour": 1}, 422, "colour"),
    "a huge recursion limit": ({"config": {"recursion_limit": 10**12}}, 422, "config.recursion_limit"),
}


@pytest.mark.parametrize("kind", ["", "/stream", "/wait"])
@pytest.mark.parametrize("case", REFUSALS, ids=str)
async def test_refusals(http: httpx.AsyncClient, thread: str, case: str, kind: str) -> None:
    body, status, words = REFUSALS[case]
    answer = await http.post(f"/threads/{thread}/runs{kind}", json={"assistant_id": "stub", **body})
    assert (answer.status_code, list(answer.json())) == (status, ["detail"]), answer.text
    assert words in answer.json()["detail"]
    assert (await http.get(f"/threads/{thread}/runs")).json() == []


async def test_a_stateless_resume_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post("/runs/wait", json={"assistant_id": "stub", "command": {"resume": 1}})
    assert (answer.status_code, answer.json()) == (400, {"detail": "You must provide a thread_id when resuming."})
