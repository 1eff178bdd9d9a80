"""`kill -9` of `runyard dev` at the worst moments: what goes on at the next start, what isn't done again."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.cli.conftest import Dev, Start

pytestmark = pytest.mark.timeout(240)  # each start imports LangGraph: seconds on a busy machine
GRAPHS = """
import asyncio
import operator
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

HERE = Path(__file__).parent


class State(TypedDict, total=False):
    name: str
    log: Annotated[list[str], operator.add]


def did(state: State, config: RunnableConfig, step: str) -> State:
    with (HERE / "done").open("a") as file:
        file.write(f"{state['name']} {step} {config['metadata']['attempt']}\\n")
    return {"log": [step]}


async def first(state: State, config: RunnableConfig) -> State:
    return did(state, config, "first")


async def second(state: State, config: RunnableConfig) -> State:
    with (HERE / "in-second").open("a") as file:
        file.write(f"{state['name']}\\n")
    while not (HERE / "gate").exists():
        await asyncio.sleep(0.02)
    return did(state, config, "second")


async def ask(state: State, config: RunnableConfig) -> State:
    return {"log": [interrupt("go on?")]}


gated = StateGraph(State).add_node("first", first).add_node("second", second)
gated = gated.add_edge(START, "first").add_edge("first", "second").add_edge("second", END).compile()
asking = StateGraph(State).add_node("first", first).add_node("ask", ask)
asking = asking.add_edge(START, "first").add_edge("first", "ask").add_edge("ask", END).compile()
short = StateGraph(State).add_node("first", first).add_edge(START, "first").add_edge("first", END).compile()
"""


class Project:
    """The project that is killed; its graphs write down what they did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "killed_graphs.py").write_text(GRAPHS)
        graphs = {name: f"./killed_graphs.py:{name}" for name in ("gated", "asking", "short")}
        self.config = folder / "langgraph.json"
        self.config.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))

    def open_gate(self) -> None:
        (self._folder / "gate").touch()

    def done(self) -> list[str]:
        """`name step attempt` of each step that was executed to its end, in order."""
        return self._lines("done")

    async def until_in_second(self, name: str) -> None:
        async with asyncio.timeout(60):
            while name not in self._lines("in-second"):  # noqa: ASYNC110  another process writes the file
                await asyncio.sleep(0.02)

    def _lines(self, name: str) -> list[str]:
        file = self._folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def _thread(dev: Dev) -> str:
    return str((await dev.client.threads.create())["thread_id"])


async def _begin(dev: Dev, thread: str, graph: str, name: str) -> str:
    run = await dev.client.runs.create(thread, graph, input={"name": name}, stream_mode=["updates", "values"])
    return run["run_id"]


async def _kill(dev: Dev) -> None:
    assert await dev.stop(signal.SIGKILL) == -signal.SIGKILL


async def _stream(dev: Dev, thread: str, run_id: str, after: str) -> AsyncGenerator[tuple[str, str, Any], None]:
    """(id, event, data) of each event of the run after an id."""
    async with (
        httpx.AsyncClient(timeout=60, headers={"last-event-id": after}) as http,
        http.stream("GET", f"{dev.url}/threads/{thread}/runs/{run_id}/stream") as stream,
    ):
        fields: dict[str, str] = {}
        async for line in stream.aiter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
                fields = {}


async def _events(dev: Dev, thread: str, run_id: str, after: str, until: str) -> list[tuple[str, str, Any]]:
    """The events of the run's stream after an id, up to the first of the kind `until`."""
    found: list[tuple[str, str, Any]] = []
    async with aclosing(_stream(dev, thread, run_id, after)) as events:
        async for event in events:
            found.append(event)
            if event[1] == until:
                break
    return found


def _order(event_id: str) -> tuple[int, int]:
    base, _, number = event_id.partition("-")
    return int(base), int(number)


async def test_in_a_step_with_others_behind_it(start: Start, project: Project) -> None:
    """One run is in its second step, two wait behind it, one of another thread waits for the only slot: the finished
    step isn't done again, all end in their order, and who read the stream goes on reading where it was."""
    dev = await start("--slots", "1", config=project.config)
    thread, other = await _thread(dev), await _thread(dev)
    runs = [await _begin(dev, thread, "gated", name) for name in ("a", "b", "c")]
    await project.until_in_second("a")
    unclaimed = await _begin(dev, other, "short", "d")
    before = await _events(dev, thread, runs[0], "-1", "updates")
    await _kill(dev)
    assert project.done() == ["a first 1"]

    project.open_gate()
    dev = await start("--slots", "1", config=project.config)
    assert dev.started["taken_up"] == 4
    after = await _events(dev, thread, runs[0], before[-1][0], "end")
    for run_id, of in ((runs[1], thread), (runs[2], thread), (unclaimed, other)):
        await dev.client.runs.join(of, run_id)
    assert [line for line in project.done() if not line.startswith("d")] == [
        "a first 1",
        "a second 2",
        "b first 1",
        "b second 1",
        "c first 1",
        "c second 1",
    ]
    assert "d first 1" in project.done()
    shown = {run["run_id"]: run["status"] for run in await dev.client.runs.list(thread)}
    assert shown == dict.fromkeys(runs, "success")

    ids = [_order(one) for one, _, _ in [*before, *after] if one]
    assert ids == sorted(set(ids))
    again = {"run_id": runs[0], "attempt": 2, "resumed_step": 1}
    assert [data for _, event, data in after if event == "metadata"] == [again]
    assert [data for _, event, data in [*before, *after] if event == "updates"] == [
        {"first": {"log": ["first"]}},
        {"second": {"log": ["second"]}},
    ]
    assert after[-1][1:] == ("end", {"status": "success"})


async def test_finished_interrupted_and_cancelled_runs(start: Start, project: Project) -> None:
    """Killed the moment a run has ended, while a question is open on another thread, and right after the cancel of a
    run on a third was accepted: nothing is done twice, the question can be answered, the cancelled run has ended."""
    dev = await start(config=project.config)
    finished, asked, cancelled = [await _thread(dev) for _ in range(3)]
    question: Any = await dev.client.runs.wait(asked, "asking", input={"name": "q"})
    assert question["__interrupt__"][0]["value"] == "go on?"
    stopped = await _begin(dev, cancelled, "gated", "s")
    await project.until_in_second("s")
    ended = await _begin(dev, finished, "short", "f")
    await _events(dev, finished, ended, "-1", "end")
    async with httpx.AsyncClient(timeout=60) as http:
        accepted = await http.post(f"{dev.url}/threads/{cancelled}/runs/{stopped}/cancel")
        dev.process.send_signal(signal.SIGKILL)
    assert accepted.status_code == 202
    await dev.process.communicate()
    done = project.done()

    project.open_gate()
    dev = await start(config=project.config)
    assert dev.started["taken_up"] <= 1  # none, where the cancel was quicker than the kill
    assert (await dev.client.runs.get(finished, ended))["status"] == "success"
    await dev.client.runs.join(cancelled, stopped)
    assert (await dev.client.runs.get(cancelled, stopped))["status"] == "interrupted"
    assert (await dev.client.threads.get(asked))["status"] == "interrupted"
    assert project.done() == done == ["q first 1", "s first 1", "f first 1"]
    final: Any = await dev.client.runs.wait(asked, "asking", command={"resume": "yes"})
    assert final["log"] == ["first", "yes"]
    again: Any = await dev.client.runs.wait(cancelled, "gated", input={"name": "t"})
    assert again["log"][-2:] == ["first", "second"]


async def test_ctrl_c_with_an_open_stream_ends_it_and_leaves_no_traceback(start: Start, project: Project) -> None:
    dev = await start(config=project.config)
    thread = await _thread(dev)
    run_id = await _begin(dev, thread, "gated", "a")
    await project.until_in_second("a")
    seen: list[str] = []
    async with aclosing(_stream(dev, thread, run_id, "-1")) as events:
        async for _, event, _ in events:
            if not seen:
                dev.process.send_signal(signal.SIGINT)
            seen.append(event)
    await dev.process.communicate()
    assert (dev.process.returncode, seen[0], "end" in seen) == (0, "metadata", False)
    said = (project.config.parent / "dev.log").read_text()
    assert "Traceback" not in said, said
