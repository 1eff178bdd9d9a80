"""Which versions of LangGraph a runtime works with, and what it says of others."""

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from runyard_runtime.launch import installed, pins, unsupported

REQUIREMENTS = (
    'langgraph==1.2.24; extra == "runtime"',
    'langgraph-checkpoint-postgres==3.2.0; extra == "runtime"',
    'langgraph-checkpoint-sqlite==3.1.2; extra == "runtime"',
    'langchain-core<2,>=1.8; extra == "runtime"',
)
FITTING = {"langgraph": "1.2.24", "langgraph-checkpoint-postgres": "3.2.0"}


def test_what_is_installed_here_fits() -> None:
    assert unsupported(requires("runyard") or (), installed) is None


def test_the_pinned_packages_are_those_of_langgraph_that_a_pod_uses() -> None:
    assert pins(REQUIREMENTS) == FITTING
    assert "langgraph-checkpoint-postgres" in pins(requires("runyard") or ())


@pytest.mark.parametrize("found", ["1.2.24", "1.2.3", "1.3.0", "1.10.1"])
def test_a_langgraph_that_fits(found: str) -> None:
    assert unsupported(REQUIREMENTS, (FITTING | {"langgraph": found}).get) is None


@pytest.mark.parametrize(
    ("package", "found", "told"),
    [
        ("langgraph", "1.1.9", "langgraph 1.1.9, this runtime works with 1.2.24"),
        ("langgraph", "2.0.0", "langgraph 2.0.0, this runtime works with 1.2.24"),
        (
            "langgraph-checkpoint-postgres",
            "3.2.1",
            "langgraph-checkpoint-postgres 3.2.1, this runtime works with 3.2.0",
        ),
        ("langgraph-checkpoint-postgres", None, "no langgraph-checkpoint-postgres, this runtime works with 3.2.0"),
    ],
)
def test_a_langgraph_that_does_not_fit_is_told_with_the_version_that_would(
    package: str, found: str | None, told: str
) -> None:
    problem = unsupported(REQUIREMENTS, (FITTING | {package: found}).get)
    assert problem is not None
    assert told in problem


def test_with_another_checkpoint_package_nothing_starts_and_the_reason_is_left_for_the_operator(tmp_path: Path) -> None:
    info = tmp_path / "site" / "langgraph_checkpoint_postgres-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: langgraph-checkpoint-postgres\nVersion: 9.9.9\n")
    log = tmp_path / "termination"
    environment = os.environ | {"PYTHONPATH": str(info.parent), "RUNYARD_TERMINATION_LOG": str(log)}
    done = subprocess.run(
        [sys.executable, "-m", "runyard_runtime.launch"], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(log.read_bytes())
    assert told["reason"] == "UnsupportedLangGraph"
    assert "langgraph-checkpoint-postgres 9.9.9" in told["message"]
    assert done.stderr.count("\n") == 1
