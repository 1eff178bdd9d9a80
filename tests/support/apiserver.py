"""A real Kubernetes API server for tests: one per session, with our CRDs, and a namespace of its own for each test.

A folder's conftest.py imports the fixtures it needs. Nothing here skips: a machine that can't run it fails, with the
sentence in which hack/cluster says what is missing.
"""

import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from runyard_kube.client import KubeClient
from runyard_kube.resources import Resource

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
TOOL = (sys.executable, str(ROOT / "hack" / "cluster"))


@dataclass(frozen=True)
class ApiServer:
    """How to reach the running server: by a client with `kubeconfig`, or by its own kubectl."""

    kubeconfig: Path
    binary: Path

    def try_kubectl(self, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Runs kubectl, at most 20 s, and returns what came of it."""
        command = [str(self.binary), "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=20, check=False)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs kubectl and returns its output; fails the test if it fails."""
        done = self.try_kubectl(*arguments, stdin=stdin)
        if done.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


def cluster_tool(*arguments: str) -> str:
    """Runs hack/cluster and gives what it printed; fails the test if it fails."""
    done = subprocess.run([*TOOL, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        pytest.fail(f"hack/cluster {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}", pytrace=False)
    return done.stdout.strip()


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A running API server without nodes and controllers, our CRDs installed; it ends with the session."""
    binaries = Path(
        cluster_tool("bin")
    )  # first, so that a long build is a clear failure here rather than a test's time-out
    folder = tmp_path_factory.mktemp("apiserver")
    server = ApiServer(Path(cluster_tool("apiserver", "up", "--dir", str(folder))), binaries / "kubectl")
    try:
        server.kubectl("apply", "-f", str(ROOT / "crds"))
        server.kubectl("wait", "--for=condition=Established", "--timeout=15s", "-f", str(ROOT / "crds"))
        yield server
    finally:
        cluster_tool("apiserver", "down", "--dir", str(folder))


@pytest_asyncio.fixture
async def kube(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    """A client with every right."""
    async with await KubeClient.open(api_server.kubeconfig) as client:
        yield client


@pytest_asyncio.fixture
async def namespace(kube: KubeClient) -> str:
    """A new namespace. It stays until the server ends: nothing here could finish its deletion."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    await kube.create(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
