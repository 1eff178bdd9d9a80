"""`helm`: the chart rendered by the helm that hack/cluster builds, or by the one on PATH. Nothing here skips."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "runyard"
EVERYTHING = Path(__file__).parent / "everything.yaml"

Rendered = list[dict[str, Any]]


@dataclass(frozen=True)
class Helm:
    """helm with this chart; the release is `runyard` in the namespace `runyard`."""

    binary: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.binary, *arguments], capture_output=True, text=True, timeout=30, check=False)

    def template(self, *arguments: str, release: str = "runyard") -> subprocess.CompletedProcess[str]:
        return self.run("template", release, str(CHART), "--namespace", "runyard", *arguments)

    def text(self, *arguments: str) -> str:
        """What the chart renders to; fails the test with helm's own words if it doesn't."""
        done = self.template(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, *arguments: str) -> Rendered:
        return [document for document in yaml.safe_load_all(self.text(*arguments)) if document]

    def refusal(self, *arguments: str, release: str = "runyard") -> str:
        """What helm says when it refuses the values."""
        done = self.template(*arguments, release=release)
        assert done.returncode != 0, f"helm took {arguments}"
        return done.stderr


@pytest.fixture(scope="session")
def helm() -> Helm:
    tool = [sys.executable, str(ROOT / "hack" / "cluster"), "bin"]
    built = subprocess.run(tool, capture_output=True, text=True, timeout=60, check=False)
    folder = built.stdout.strip() if built.returncode == 0 else None
    binary = shutil.which("helm", path=folder) if folder else shutil.which("helm")
    if binary is None:
        pytest.fail("There is no helm: `python3 hack/cluster build` makes it.", pytrace=False)
    return Helm(binary)


@pytest.fixture(scope="session", params=["default values", "everything set", "external database"])
def rendered(request: pytest.FixtureRequest, helm: Helm) -> Rendered:
    """All objects of the chart, for three sets of values."""
    choices = {
        "default values": [],
        "everything set": ["--values", str(EVERYTHING)],
        "external database": ["--set", "postgres.enabled=false,database.external.secretName=my-database"],
    }
    return helm.objects(*choices[request.param])


def pods(rendered: Rendered) -> dict[str, dict[str, Any]]:
    """Kind/name of each object that makes pods, and the spec of its pods."""
    return {
        f"{found['kind']}/{found['metadata']['name']}": found["spec"]["template"]["spec"]
        for found in rendered
        if "template" in found.get("spec", {})
    }


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]
