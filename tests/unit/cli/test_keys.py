"""`runyard keys`: where it works, what it prints, and how a failure reads. kubectl is a script of the test's own."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runyard_api.tokens import token_hash
from runyard_cli.failure import CommandError
from runyard_cli.main import app
from runyard_store.migrate import migrate

Kubectl = Callable[..., Path]


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """Puts a kubectl on PATH that notes its arguments and answers as told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    noted = tmp_path / "arguments"

    def make(out: str = "", err: str = "", code: int = 0) -> Path:
        (tmp_path / "out").write_text(out)
        (tmp_path / "err").write_text(err)
        script = folder / "kubectl"
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" >{noted}\ncat {tmp_path}/out; cat {tmp_path}/err >&2; exit {code}\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return noted

    return make


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'runyard.db'}"
    migrate(url)
    return url


def row(**changes: Any) -> str:
    made = {"id": "0123", "user": "a", "name": "n", "created_at": "2026-01-31T12:00:00+00:00", "revoked_at": None}
    return json.dumps([made | changes])


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str | None]:
    """An environment in which the test's kubectl comes first."""
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "RUNYARD_DATABASE_URL": None}


def refusal(*arguments: str, env: dict[str, str | None] | None = None) -> str:
    """The sentence a command fails with."""
    error = CliRunner().invoke(app, ["keys", *arguments], env=env).exception
    assert isinstance(error, CommandError)
    return str(error)


def test_a_key_is_made_listed_and_revoked_on_a_database(database: str) -> None:
    def said(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["keys", *arguments, "--database", database, "--output", "json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    made = said("create", "--user", "alice", "--name", "laptop")
    assert made["key"].startswith("ry_")
    assert made["id"] == token_hash(made["key"])[:16]
    ended = said("revoke", made["id"])
    listed = said("list")
    assert listed == [ended]
    assert "key" not in listed[0]
    assert said("list", "--user", "bob") == []


def test_the_key_alone_is_on_stdout(database: str) -> None:
    done = CliRunner().invoke(app, ["keys", "create", "--user=a", "--name=b", "--database", database])
    assert done.stdout.strip().startswith("ry_")
    assert "isn't shown again" in done.stderr


def test_the_list_is_a_table(database: str) -> None:
    CliRunner().invoke(app, ["keys", "create", "--user=alice", "--name=my laptop", "--database", database])
    lines = CliRunner().invoke(app, ["keys", "list", "--database", database]).stdout.splitlines()
    assert lines[0].split() == ["ID", "USER", "NAME", "CREATED", "REVOKED"]
    assert "alice" in lines[1]
    assert "my laptop" in lines[1]


def test_on_a_release_only_the_hash_leaves_the_terminal(kubectl: Kubectl, env: dict[str, str | None]) -> None:
    noted = kubectl(row())
    done = CliRunner().invoke(
        app,
        ["keys", "create", "--user=a", "--name=n", "--release=prod", "-n", "ns", "--context=c", "-o", "json"],
        env=env,
    )
    key = json.loads(done.stdout)["key"]
    arguments = noted.read_text().splitlines()
    assert arguments[:5] == ["--namespace=ns", "--context=c", "exec", "deployment/prod-gateway", "--container=gateway"]
    assert f"--hash={token_hash(key)}" in arguments
    assert key not in noted.read_text()


def test_a_release_that_is_named_wins_over_the_variable(kubectl: Kubectl, env: dict[str, str | None]) -> None:
    noted = kubectl("[]")
    env |= {"RUNYARD_DATABASE_URL": "sqlite:////nope/nope.db"}
    assert CliRunner().invoke(app, ["keys", "list", "-n", "ns", "-o", "json"], env=env).stdout == "[]\n"
    assert "deployment/runyard-gateway" in noted.read_text()


FAILURES = {
    "what the pod says": ({"out": '{"detail": "there is no key with the id x"}', "code": 1}, "There", "no key with"),
    "no such release": (
        {"err": 'Error from server (NotFound): deployments.apps "runyard-gateway" not found', "code": 1},
        "There",
        "no gateway of a release 'runyard' in this namespace",
    ),
    "no rights": (
        {"err": 'Error from server (Forbidden): pods "x" is forbidden: User "u" cannot create "pods/exec"', "code": 1},
        "kubectl",
        'cannot create "pods/exec".',
    ),
    "no cluster": ({"err": "The connection to the server was refused", "code": 1}, "kubectl", "refused."),
    "nothing": ({"code": 1}, "kubectl", "said nothing"),
}


@pytest.mark.parametrize(("answer", "begins", "holds"), FAILURES.values(), ids=FAILURES.keys())
def test_a_release_that_cannot_be_reached_is_one_sentence(
    kubectl: Kubectl, env: dict[str, str | None], answer: dict[str, Any], begins: str, holds: str
) -> None:
    kubectl(**answer)
    said = refusal("revoke", "x", env=env)
    assert said.startswith((begins, begins.lower()))
    assert holds in said
    assert "\n" not in said


def test_without_kubectl_it_is_named() -> None:
    assert "kubectl isn't installed" in refusal("list", "--release=x", env={"PATH": "/nowhere"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--database=mysql://x"], "--database"),
        (["list", "--database=postgresql://nobody@127.0.0.1:1/x"], "the database doesn't answer"),
        (["revoke", "nope"], "there is no key with the id nope."),
        (["create", "--user= ", "--name=x"], "user: must be 1 to 128 printable characters"),
    ],
)
def test_a_wrong_argument_on_a_database_is_one_sentence(database: str, arguments: list[str], said: str) -> None:
    given = arguments if any("--database" in a for a in arguments) else [*arguments, f"--database={database}"]
    assert said in refusal(*given)


def test_a_missing_option_is_named() -> None:
    done = CliRunner().invoke(app, ["keys", "create", "--user=a"])
    assert (done.exit_code, "--name" in done.output) == (2, True)
