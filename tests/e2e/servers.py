"""The two servers the end-to-end tests run against: `runyard dev` as a process, and a helm release in a cluster."""

import contextlib
import csv
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_client

ROOT = Path(__file__).parents[2]
RELEASE = "runyard"
AGENTS = f"{RELEASE}-agents"
TEST_IMAGE = "docker.io/runyard/runyard-testgraphs:0.1.0"


@dataclass(frozen=True)
class Server:
    """A running gateway. `headers` carry the API key where one is needed."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class App:
    """An app's side of a server, for one test: the official SDK's client, and what plain HTTP needs."""

    client: Any  # LangGraphClient; its annotations are narrower and wider than what it takes and gives
    url: str
    headers: dict[str, str]


@contextlib.asynccontextmanager
async def connected(server: Server) -> AsyncIterator[App]:
    async with get_client(url=server.url, api_key=server.headers.get("x-api-key")) as client:
        yield App(client, server.url, server.headers)


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Server]:
    """Starts `runyard dev` with the graphs of examples/hello and tests/graphs; stops it at the end."""
    config = folder / "langgraph.json"
    config.write_text(json.dumps(_all_graphs(folder)))
    port = _free_port()
    log = (folder / "dev.log").open("wb")
    command = [sys.executable, "-m", "runyard_cli", "dev", "--config", str(config), "--port", str(port)]
    process = subprocess.Popen([*command, "--state", str(folder / "state")], stdout=log, stderr=log)
    try:
        server = Server(f"http://127.0.0.1:{port}")
        _until_ok(server.url, seconds=60, alive=lambda: process.poll() is None, log=folder / "dev.log")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)
        log.close()


def _all_graphs(folder: Path) -> dict[str, Any]:
    """One project made of two, with the paths relative to `folder` that langgraph.json wants."""
    projects = [ROOT / "examples" / "hello", ROOT / "tests" / "graphs"]
    graphs: dict[str, str] = {}
    for project in projects:
        for name, target in json.loads((project / "langgraph.json").read_text())["graphs"].items():
            graphs[name] = os.path.relpath(project / target, folder)
    return {"dependencies": [os.path.relpath(p, folder) for p in projects], "graphs": graphs}


class Cluster:
    """A helm release of Runyard on the native cluster; commands raise with what they printed."""

    def tool(self, *args: str, timeout: int = 900) -> str:
        """Runs the cluster tool and gives what it printed."""
        return run([sys.executable, str(ROOT / "hack" / "cluster"), *args], timeout=timeout)

    @cached_property
    def env(self) -> dict[str, str]:
        binaries = self.tool("bin").strip()
        return {**os.environ, "KUBECONFIG": self.tool("kubeconfig").strip(), "PATH": f"{binaries}:{os.environ['PATH']}"}

    def kubectl(self, *args: str, stdin: str | None = None, timeout: int = 120) -> str:
        return run(["kubectl", *args], env=self.env, stdin=stdin, timeout=timeout)

    def helm(self, *args: str, timeout: int = 400) -> str:
        return run(["helm", *args], env=self.env, timeout=timeout)

    def get(self, kind: str, name: str, namespace: str = AGENTS) -> dict[str, Any]:
        """One object as the API server holds it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        return found

    def until_only_agents(self, names: set[str]) -> None:
        """Waits until there are no other Agents in the release's namespace; fails after 60 s."""
        for _ in range(60):
            found = {
                name.partition("/")[2] for name in self.kubectl("get", "agents", "-n", AGENTS, "-o", "name").split()
            }
            if found == names:
                return
            time.sleep(1)
        raise AssertionError(f"the Agents are {sorted(found)}, not {sorted(names)}")

    def apply(self, manifest: dict[str, Any]) -> str:
        return self.kubectl("apply", "-n", AGENTS, "-f", "-", stdin=json.dumps(manifest))

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The pods of a part of the release that aren't leaving, by name."""
        labels = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={component}"
        found = json.loads(self.kubectl("get", "pods", "-n", RELEASE, "-l", labels, "-o", "json"))["items"]
        staying = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(staying, key=lambda pod: str(pod["metadata"]["name"]))

    def query(self, sql: str) -> list[list[str]]:
        """The rows that the bundled database answers its owner, as text."""
        login = "PGPASSWORD=$(cat /etc/runyard/database/owner-password) exec psql -h /run/runyard -U runyard_owner"
        command = ["exec", f"{RELEASE}-postgres-0", "-n", RELEASE, "-i", "--", "sh", "-c"]
        text = self.kubectl(*command, f"{login} -d runyard -v ON_ERROR_STOP=1 -qt --csv", stdin=sql)
        return list(csv.reader(text.splitlines()))

    def server(self, release: str = RELEASE) -> Server:
        """The gateway's Service, reached directly, with the first API key as NOTES.txt says to read it."""
        service = self.get("service", f"{release}-gateway", release)
        key = run(
            ["sh", "-c", f"kubectl get secret {release}-api-key -n {release} -o jsonpath='{{.data.key}}' | base64 -d"],
            env=self.env,
        )
        url = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        return Server(url, {"x-api-key": key.strip()})


def install(cluster: Cluster) -> None:
    """Brings up two nodes, loads the images, installs the chart and the agents, and waits until all is ready.

    The cluster is always a new one: on an old one pods would go on with images of an earlier build.
    """
    cluster.tool("up", "--nodes", "2", "--replace", timeout=1800)
    images = [sys.executable, str(ROOT / "hack" / "images")]
    run([*images, "build"], timeout=1200)
    run([*images, "app", str(ROOT / "tests" / "graphs"), "--name", TEST_IMAGE], timeout=300)
    cluster.tool("load", *(str(p) for p in sorted((ROOT / "out" / "images").glob("*.tar"))))
    chart = str(ROOT / "charts" / "runyard")
    cluster.helm("upgrade", "--install", RELEASE, chart, "-n", RELEASE, "--create-namespace", "--wait", "--timeout=5m")
    for path in (ROOT / "examples" / "hello" / "agent.yaml", ROOT / "tests" / "graphs" / "agent.yaml"):
        cluster.kubectl("apply", "-n", AGENTS, "-f", str(path))
    cluster.kubectl("wait", "agent", "--all", "-n", AGENTS, "--for=condition=Ready", "--timeout=90s")
    server = cluster.server()
    _until_ok(server.url, seconds=60, alive=lambda: True, log=None)


def run(command: list[str], *, env: dict[str, str] | None = None, stdin: str | None = None, timeout: int = 120) -> str:
    """Runs a command and gives its output; raises AssertionError with all it printed when it fails."""
    done = subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _until_ok(url: str, *, seconds: float, alive: Any, log: Path | None) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/ok", timeout=2).status_code == 200:
                return
        assert alive(), f"the server ended: {log.read_text() if log else ''}"
        time.sleep(0.1)
    raise AssertionError(f"{url}/ok didn't answer in {seconds} s: {log.read_text() if log else ''}")
