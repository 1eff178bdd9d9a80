"""hack/generate_crds.py: the same files every time, and a check that names the stale ones."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def _generate(root: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "hack" / "generate_crds.py"), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def test_the_files_in_the_repository_are_what_the_models_say() -> None:
    done = _generate(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_it_writes_one_readable_file_per_kind_and_then_finds_nothing_stale(tmp_path: Path) -> None:
    assert _generate(tmp_path).returncode == 0
    names = sorted(path.name for path in (tmp_path / "crds").iterdir())
    assert names == ["agents.yaml", "runs.yaml"]
    kinds = [yaml.safe_load((tmp_path / "crds" / name).read_text())["spec"]["names"]["kind"] for name in names]
    assert kinds == ["Agent", "Run"]
    assert all(chr(38) + "id" not in (tmp_path / "crds" / name).read_text() for name in names)
    assert _generate(tmp_path, "--check").returncode == 0


def test_the_chart_s_copy_is_written_where_the_chart_keeps_one(tmp_path: Path) -> None:
    copy = tmp_path / "charts" / "runyard" / "files" / "crds"
    copy.mkdir(parents=True)
    _generate(tmp_path)
    assert (copy / "runs.yaml").read_text() == (tmp_path / "crds" / "runs.yaml").read_text()


@pytest.mark.parametrize("harm", ["edited", "missing", "left over"])
def test_the_check_names_the_file_and_changes_nothing(tmp_path: Path, harm: str) -> None:
    _generate(tmp_path)
    path = tmp_path / "crds" / ("old.yaml" if harm == "left over" else "runs.yaml")
    if harm == "missing":
        path.unlink()
    else:
        path.write_text("kind: Other\n")
    done = _generate(tmp_path, "--check")
    assert done.returncode == 1
    assert done.stderr == f"crds/{path.name} is stale: run python3 hack/generate_crds.py\n"
    assert path.exists() is (harm != "missing")
