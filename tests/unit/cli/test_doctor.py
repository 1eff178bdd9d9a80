"""`runyard doctor`: one line for each thing that `runyard dev` needs, and an exit code."""

import socket
from pathlib import Path

from typer.testing import CliRunner

from runyard_cli.doctor import (
    packages_fit,
    port_is_free,
    project_reads,
    python_fits,
    state_is_writable,
    wanted_versions,
)
from runyard_cli.main import app

CONFIG = '{"graphs": {"agent": "./a.py:graph"}, "auth": {"path": "x"}}'


def test_an_old_python_is_told() -> None:
    assert python_fits((3, 11, 0)).well
    assert python_fits((3, 10, 9)).text == "3.10.9; Runyard needs 3.11 or newer"


def test_another_version_of_langgraph_is_told_with_what_to_install() -> None:
    wanted = wanted_versions(
        [
            'langgraph==1.2.3; extra == "runtime"',
            "orjson<4,>=3.13",
            'pytest==9.2.0; extra == "dev"',
            "langgraph-sdk==0.4",
        ]
    )
    assert wanted == {"langgraph": "1.2.3", "langgraph-sdk": "0.4"}
    assert packages_fit(wanted, {"langgraph": "1.2.3", "langgraph-sdk": "0.4"}.get).well
    wrong = packages_fit(wanted, {"langgraph": "1.0"}.get)
    assert (wrong.well, wrong.text) == (
        False,
        "langgraph 1.0, langgraph-sdk not installed; pip install langgraph==1.2.3 langgraph-sdk==0.4",
    )


def test_a_project_is_read(tmp_path: Path) -> None:
    config = tmp_path / "langgraph.json"
    assert "--config" in project_reads(config).text
    config.write_text(CONFIG)
    assert project_reads(config).text == f"{config} with agent; without effect here: auth"


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "address already in use" in port_is_free("127.0.0.1", port).text
    assert port_is_free("127.0.0.1", 0).well
    assert not port_is_free("no-such-host.invalid", 1).well


def test_a_state_folder_is_there_or_can_be_made(tmp_path: Path) -> None:
    assert state_is_writable(tmp_path / "a" / "b").text.endswith("b, to be made")
    (tmp_path / "file").touch()
    assert not state_is_writable(tmp_path / "file" / "state").well


def test_the_exit_code_says_whether_all_is_well(tmp_path: Path) -> None:
    config = tmp_path / "langgraph.json"
    config.write_text(CONFIG)
    options = ["doctor", "--config", str(config), "--port", "0", "--state", str(tmp_path / "state")]
    well = CliRunner().invoke(app, options)
    assert (well.exit_code, well.output.count("\n"), well.output.count("ok  ")) == (0, 5, 5)
    config.unlink()
    broken = CliRunner().invoke(app, options)
    assert (broken.exit_code, "no  project" in broken.output) == (1, True)
    assert not (tmp_path / "state").exists()
