"""Options and help of the command."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runyard_cli.embedded.process import LONGEST_SOCKET_PATH, runtime_socket
from runyard_cli.embedded.serve import sentence
from runyard_cli.failure import CommandError
from runyard_cli.main import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dev", "--port", "x"], "--port"),
        (["dev", "--port", "70000"], "--port"),
        (["dev", "--slots", "0"], "--slots"),
        (["dev", "--nope"], "--nope"),
        (["dev", "--quiet", "--verbose"], "contradict"),
        (["nope"], "nope"),
    ],
)
def test_a_wrong_argument_is_named_and_ends_with_two(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_help_names_every_option() -> None:
    result = CliRunner().invoke(app, ["dev", "--help"])
    assert result.exit_code == 0
    for option in ("--config", "--host", "--port", "--state", "--slots", "--json", "--token", "--quiet", "--verbose"):
        assert option in result.output


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.startswith("runyard ")


@pytest.mark.parametrize(("command", "module"), [("dev", "embedded.serve"), ("doctor", "doctor")])
def test_without_the_embedded_extra_a_command_says_so(
    monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, f"runyard_cli.{module}", None)
    result = CliRunner().invoke(app, [command])
    assert isinstance(result.exception, CommandError)
    assert "extra 'embedded'" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("there is none", "There is none."),
        ("Why?", "Why?"),
        ("It broke.", "It broke."),
        ("langgraph.json is no JSON", "langgraph.json is no JSON."),
    ],
)
def test_a_failure_is_a_sentence(text: str, whole: str) -> None:
    assert sentence(text) == whole


def test_a_short_state_path_holds_the_socket_and_a_long_one_does_not(tmp_path: Path) -> None:
    short, long = tmp_path / "s", tmp_path / ("x" * LONGEST_SOCKET_PATH)
    for state in (short, long):
        state.mkdir()
    with runtime_socket(short) as near, runtime_socket(long) as far:
        assert near.is_relative_to(short) or len(bytes(short)) > 80
        assert not far.is_relative_to(long)
        assert len(bytes(far)) <= LONGEST_SOCKET_PATH
        assert far.parent.stat().st_mode & 0o077 == 0
    assert not far.parent.exists()
