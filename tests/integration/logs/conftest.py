"""A gateway, an operator and agent pods as processes that log at debug, with secrets that can be told from all else."""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.integration.operator.harness import START_PATIENCE, OperatorProcess, free_port, until
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.rights import operator_kubeconfig
from tests.support.apiserver import ApiServer, api_server
from tests.support.manifests import agent
from tests.support.postgres import PostgresServer, postgres_server

from runyard_api.crd import Manifest, format_time
from runyard_api.tokens import pod_token
from runyard_kube.client import KubeClient
from runyard_kube.resources import AGENTS
from runyard_operator.seen import pod_of
from runyard_operator.world import utc_now
from runyard_store.database import open_database
from runyard_store.keys import add_key
from runyard_store.migrate import migrate

__all__ = ["api_server"]
HERE = Path(__file__).parent
LOGS = {"RUNYARD_LOG_LEVEL": "debug"}


@dataclass
class Marks:
    """Values that no log may hold. `pod_tokens` come as pods do."""

    text: str = "text-" + uuid.uuid4().hex
    api_key: str = "key-" + uuid.uuid4().hex
    wrong_key: str = "wrong-" + uuid.uuid4().hex
    model_key: str = "model-" + uuid.uuid4().hex
    token_key: str = "token-" + uuid.uuid4().hex
    password: str = "password-" + uuid.uuid4().hex
    pod_tokens: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        return [
            self.text,
            self.api_key,
            self.wrong_key,
            self.model_key,
            self.token_key,
            self.password,
            *self.pod_tokens,
        ]


class ProcessKubelet(Kubelet):
    """Starts each pod as a process whose output is kept in a file."""

    def __init__(self, kube: KubeClient, namespace: str, database_url: str, *, marks: Marks, log: Path) -> None:
        super().__init__(kube, namespace, database_url)
        self._url, self._marks, self._log = database_url, marks, log
        self._pods: list[asyncio.subprocess.Process] = []

    async def stop(self) -> None:
        await super().stop()
        for pod in self._pods:
            pod.terminate()
            await pod.wait()

    async def _run(self, pod: Manifest) -> None:
        view, (container, *_) = pod_of(pod), pod["spec"]["containers"]
        token = pod_token(self._marks.token_key.encode(), namespace=view.namespace, pod=view.name, nonce=view.nonce)
        self._marks.pod_tokens.append(token)
        environment = {one["name"]: one["value"] for one in container["env"] if "value" in one} | {
            "RUNYARD_DATABASE_URL": self._url,
            "RUNYARD_POD_NAME": view.name,
            "RUNYARD_CONFIG": str(HERE / "project" / "langgraph.json"),
            "MODEL_KEY": self._marks.model_key,
            **LOGS,
        }
        address = f"127.31.{os.getpid() % 256}.{len(self._pods) + 1}"
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(HERE / "pod.py"),
                address,
                env=os.environ | environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self._pods.append(process)
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n", self._log.read_text()
        running = {"running": {"startedAt": format_time(utc_now())}}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await self._report(view.name, status | self._container(container["image"], running))


@dataclass
class Installed:
    """What the tests see: a client of the gateway, the marks, and all that was logged."""

    http: httpx.AsyncClient
    kube: KubeClient
    namespace: str
    marks: Marks
    folder: Path
    environment: dict[str, str]

    def logged(self, service: str = "*") -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob(f"{service}.log")))

    async def until_logged(self, service: str, *words: str) -> str:
        """The first line of a service that has all these words, once it is there."""

        def line() -> str | None:
            return next((one for one in self.logged(service).splitlines() if all(w in one for w in words)), None)

        await until(line, f"{service} logs {words}", START_PATIENCE)
        found = line()
        assert found is not None
        return found


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(
    api_server: ApiServer, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installed]:
    folder, marks, namespace = tmp_path_factory.mktemp("logs"), Marks(), f"test-{uuid.uuid4().hex[:12]}"
    (folder / "token-key").write_text(marks.token_key)
    api_server.kubectl("create", "namespace", namespace)
    url = server.new_database()
    migrate(url)
    db = await open_database(url, 2)
    await add_key(db, marks.api_key, "alice", "test", utc_now())
    await db.close()
    url = url.replace("postgres@", f"postgres:{marks.password}@")
    port = free_port()
    environment = {
        "KUBECONFIG": str(operator_kubeconfig(api_server, namespace, folder)),
        "RUNYARD_DATABASE_URL": url,
        "RUNYARD_AGENTS_NAMESPACE": namespace,
        "RUNYARD_TOKEN_KEY_FILE": str(folder / "token-key"),
        "RUNYARD_AGENT_DATABASE_SECRET": "runyard-database",
        **LOGS,
    }
    for_gateway = environment | {
        "KUBECONFIG": str(api_server.kubeconfig),
        "RUNYARD_PORT": str(port),
        "RUNYARD_METRICS_PORT": "0",
    }
    operator = OperatorProcess(environment, folder / "operator.log")
    async with (
        await KubeClient.open(api_server.kubeconfig) as kube,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"x-api-key": marks.api_key}, timeout=30
        ) as http,
    ):
        kubelet = ProcessKubelet(kube, namespace, url, marks=marks, log=folder / "runtime.log")
        await kubelet.start()
        await operator.start()
        with (folder / "gateway.log").open("ab") as log:
            gateway = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "runyard_gateway", env=os.environ | for_gateway, stdout=log, stderr=log
            )
        try:
            await kube.create(AGENTS, namespace, agent("hello"))
            yield Installed(await _ready(http), kube, namespace, marks, folder, for_gateway)
        finally:
            gateway.terminate()
            await gateway.wait()
            await operator.stop()
            await kubelet.stop()


async def _ready(http: httpx.AsyncClient) -> httpx.AsyncClient:
    async def knows() -> Any:
        try:
            return (await http.post("/assistants/search", json={})).json()
        except httpx.ConnectError:
            return None

    await until(knows, "the gateway knows the agent's graphs", 90)
    return http
