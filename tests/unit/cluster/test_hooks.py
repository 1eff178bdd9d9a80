"""The hooks of .pre-commit-config.yaml: only the repository's own tools, so that they need no network."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_every_hook_is_a_tool_of_this_repository_that_ci_runs_too() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    for hook in local["hooks"]:
        words = hook["entry"].split()
        assert words[0] == "make" or words[0].startswith((".venv/bin/", "hack/")), hook["id"]
        for script in (word for word in words if word.startswith("hack/")):
            assert (ROOT / script).is_file()
            assert script in makefile
