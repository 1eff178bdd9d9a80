"""Fixtures of the cluster's own tests: a cluster of two nodes with the probe's image, and a namespace for each test.

RUNYARD_KEEP_CLUSTER=1 leaves the cluster up at the end. What is missing fails the tests with the tool's own sentence.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[2] / "hack" / "cluster"
PROBE = "runyard.dev/probe:1"
NODES = 2


def run_tool(*arguments: str | Path, timeout: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a verb of the cluster tool; with `check`, its failure fails the test with what it said."""
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if check and done.returncode:
        pytest.fail(f"`cluster {' '.join(map(str, arguments))}` failed: {done.stderr.strip()}", pytrace=False)
    return done


@dataclass(frozen=True)
class Cluster:
    """A running cluster, used through kubectl."""

    kubectl_path: Path
    kubeconfig: Path

    def kubectl(self, *arguments: str, text_in: str | None = None, check: bool = True) -> str:
        """Run kubectl and return its stdout; with `check`, its failure fails the test."""
        command = [str(self.kubectl_path), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=text_in, capture_output=True, text=True, timeout=90, check=False)
        if check and done.returncode:
            pytest.fail(f"`kubectl {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout

    def apply(self, namespace: str, *manifests: dict[str, Any]) -> None:
        """Apply manifests in a namespace."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("-n", namespace, "apply", "-f", "-", text_in=json.dumps(items))

    def wait_ready(self, namespace: str, *pods: str) -> None:
        """Return when pods are Ready; fails the test after 60 s."""
        names = [f"pod/{pod}" for pod in pods]
        self.kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=60s", *names)

    def probe(self, namespace: str, pod: str, *arguments: str) -> str | None:
        """Run the probe inside a pod and return what it printed; None when it failed."""
        command = [str(self.kubectl_path), "--kubeconfig", str(self.kubeconfig), "-n", namespace, "exec", pod, "--"]
        done = subprocess.run([*command, "/probe", *arguments], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    @staticmethod
    def pod(name: str, *arguments: str, node: str | None = None, **spec: Any) -> dict[str, Any]:
        """Return a pod that runs the probe, labelled app=NAME; `node` pins it, `spec` is added to its spec."""
        container: dict[str, Any] = {
            "name": "probe",
            "image": PROBE,
            "imagePullPolicy": "Never",
            "args": list(arguments),
        }
        container |= spec.pop("container", {})
        where = {"kubernetes.io/hostname": node} if node else {}
        body = {"containers": [container], "nodeSelector": where, "terminationGracePeriodSeconds": 1} | spec
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}

    @staticmethod
    def service(name: str) -> dict[str, Any]:
        """Return a Service on port 80 in front of the pods labelled app=NAME."""
        spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster of two nodes with the probe's image in both; one that is up already is used as it is."""
    was_up = run_tool("status", check=False).returncode == 0
    run_tool("up", "--nodes", str(NODES), timeout=1500)
    folder = Path(run_tool("bin").stdout.strip())
    run_tool("load", folder.parent / "images" / "probe.tar")
    yield Cluster(folder / "kubectl", Path(run_tool("kubeconfig").stdout.strip()))
    if not was_up and os.environ.get("RUNYARD_KEEP_CLUSTER") != "1":
        run_tool("down")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """An empty namespace, removed after the test without waiting."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def tool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_tool`: runs a verb of the cluster tool."""
    return run_tool
