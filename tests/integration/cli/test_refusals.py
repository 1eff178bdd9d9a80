"""What `runyard dev` doesn't start with: each ends with exit code 1 and one sentence that says what to do about it."""

import json
import socket
import sqlite3
from pathlib import Path

import pytest
from tests.integration.cli.conftest import HELLO, Start, refused

pytestmark = pytest.mark.timeout(120)  # each start imports LangGraph: seconds on a busy machine
GRAPH = "from langgraph.graph import StateGraph\n"


def project(folder: Path, config: str | None, code: str = GRAPH) -> Path:
    """A project folder; gives the path of its langgraph.json."""
    (folder / "graph.py").write_text(code)
    if config is not None:
        (folder / "langgraph.json").write_text(config)
    return folder / "langgraph.json"


def config_of(target: str) -> str:
    return json.dumps({"dependencies": ["."], "graphs": {"agent": target}})


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        (None, GRAPH, ["langgraph.json", "no"]),
        ("{", GRAPH, ["langgraph.json", "JSON"]),
        ("[]", GRAPH, ["langgraph.json", "object"]),
        ('{"graphs": {}}', GRAPH, ["no graphs"]),
        ('{"graphs": {"agent": 7}}', GRAPH, ["agent", "path:variable"]),
        (config_of("./graph.py:missing"), GRAPH, ["agent", "missing"]),
        (config_of("./nowhere.py:graph"), GRAPH, ["agent", "nowhere.py"]),
        (config_of("./graph.py:graph"), "import no_such_module_at_all", ["agent", "No module named", "no_such_module"]),
        (config_of("./graph.py:graph"), "graph = 1 / 0", ["agent", "ZeroDivisionError"]),
        (config_of("./graph.py:graph"), "graph = 7", ["agent", "int"]),
    ],
)
async def test_a_project_that_cannot_be_served(tmp_path: Path, config: str | None, code: str, said: list[str]) -> None:
    path = project(tmp_path, config, code)
    error = await refused("--config", str(path), "--port", "0", "--state", str(tmp_path / "state"))
    assert_one_sentence(error)
    assert [word for word in said if word not in error] == [], error


async def test_a_second_process_on_the_same_state_folder(start: Start, tmp_path: Path) -> None:
    dev = await start()
    error = await refused("--config", str(HELLO), "--port", "0", "--state", str(tmp_path / "state"))
    assert_one_sentence(error)
    assert f"process {dev.process.pid}" in error
    assert "--state" in error


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        error = await refused("--config", str(HELLO), "--port", port, "--state", str(tmp_path / "state"))
    assert_one_sentence(error)
    assert port in error
    assert "--port" in error


async def test_a_host_that_is_not_this_machine(tmp_path: Path) -> None:
    error = await refused("--config", str(HELLO), "--host", "192.0.2.1", "--state", str(tmp_path / "state"))
    assert_one_sentence(error)
    assert "192.0.2.1" in error


async def test_a_database_of_a_newer_version(start: Start, tmp_path: Path) -> None:
    await (await start()).stop()
    with sqlite3.connect(tmp_path / "state" / "runyard.db") as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    error = await refused("--config", str(HELLO), "--port", "0", "--state", str(tmp_path / "state"))
    assert_one_sentence(error)
    assert "newer" in error


def assert_one_sentence(error: str) -> None:
    assert error.startswith("Error: ")
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
