"""What `runyard dev` prints: nothing that callers send, warnings and errors of graphs to read, a line at once."""

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.cli.conftest import COMMAND, Start, token_of

pytestmark = pytest.mark.timeout(240)  # each start imports LangGraph: seconds on a busy machine
GRAPHS = """
import os
from typing import TypedDict
from langgraph.graph import START, StateGraph

class State(TypedDict):
    text: str

def say(state: State) -> State:
    return {"text": state["text"] + os.environ["MODEL_KEY"]}

def fail(state: State) -> State:
    raise LookupError("no such tool")

told = StateGraph(State).add_node("say", say).add_edge(START, "say").compile()
failing = StateGraph(State).add_node("fail", fail).add_edge(START, "fail").compile()
"""


def project(folder: Path) -> Path:
    (folder / "output_graphs.py").write_text(GRAPHS)
    graphs = {name: f"./output_graphs.py:{name}" for name in ("told", "failing")}
    config = {"dependencies": ["."], "graphs": graphs, "env": {"MODEL_KEY": "model-7f3a"}, "auth": {"path": "./a.py:a"}}
    (folder / "langgraph.json").write_text(json.dumps(config))
    return folder / "langgraph.json"


async def test_nothing_that_callers_send_is_printed_in_any_detail(start: Start, tmp_path: Path) -> None:
    dev = await start("--verbose", "--token", config=project(tmp_path))
    token = token_of(dev.started)
    assert token is not None
    final: Any = await dev.client.runs.wait(None, "told", input={"text": "text-91bc"}, metadata={"a": "text-91bc"})
    assert final["text"] == "text-91bcmodel-7f3a"
    failed: Any = await dev.client.runs.wait(None, "failing", input={"text": "text-91bc"}, raise_error=False)
    assert failed["__error__"]["error"] == "LookupError"
    async with httpx.AsyncClient(base_url=dev.url, headers={"x-api-key": token}, timeout=30) as http:
        wrong: list[dict[str, Any]] = [
            {"headers": {"x-api-key": "wrong-55d0"}, "json": {}},
            {"content": b'{"input": "text-91bc', "headers": {"content-type": "application/json"}},
            {"content": b"text-91bc"},
            {"json": {"assistant_id": "told", "stream_mode": "text-91bc"}},
            {"json": {"assistant_id": "told", "input": {"text": {"a": "text-91bc"}}}},
        ]
        for request in wrong:
            await http.post("/runs/wait", **request)
    dev.process.send_signal(signal.SIGINT)
    out, _ = await asyncio.wait_for(dev.process.communicate(), 30)
    said = out.decode() + (tmp_path / "dev.log").read_text()
    for secret in (token, "text-91bc", "wrong-55d0", "model-7f3a"):
        assert secret not in said
    lines = [json.loads(line) for line in out.decode().splitlines()]
    failure, other = [line for line in lines if line.get("message") == "run failed"]
    assert (failure["event"], failure["level"], failure["attempt"]) == ("log", "warning", 1)
    assert "LookupError: no such tool" in failure["exception"]
    assert "TypeError" in other["exception"]
    ended, _ = [line for line in lines if line["event"] == "run_ended" and line["state"] == "error"]
    assert (ended["run"], ended["thread"]) == (failure["run"], failure["thread"])
    assert {line["status"] for line in lines if line["event"] == "request"} >= {200, 401, 415, 422}


async def test_text_is_readable_from_the_first_line_on(tmp_path: Path) -> None:
    options = ("--config", str(project(tmp_path)), "--port", "0", "--state", str(tmp_path / "state"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*COMMAND, *options, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    said = ""
    while "Ctrl-C stops" not in said:
        line = await asyncio.wait_for(process.stdout.readline(), 90)
        assert line, said
        said += line.decode()
    url = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert url is not None
    async with httpx.AsyncClient(base_url=url[0], timeout=30) as http:
        await http.post("/runs/wait", json={"assistant_id": "failing", "input": {"text": "x"}})
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err) == (0, b"")

    starting = said.splitlines()
    assert starting[0].startswith("Runyard ")
    assert starting[1] == "Importing told, failing …"
    assert re.fullmatch(r"\d\d:\d\d:\d\d  warning langgraph.json has a key without effect here  key=auth", starting[2])
    assert re.fullmatch(r"Ready in \d+\.\d s", starting[3])
    told = out.decode()
    assert "\x1b" not in said + told
    assert re.search(r"POST   /runs/wait 200  \d+ ms", told)
    assert re.search(r"run    failing error after \d+\.\d s: LookupError: no such tool  run \w{8} thread \w{8}\n", told)
    assert re.search(r'File ".*/output_graphs\.py", line \d+, in fail\n\s+raise LookupError', told)
    assert "site-packages" not in told
    assert told.endswith("Stopping …\n")
