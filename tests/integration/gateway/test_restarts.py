"""Gateway processes while a real PostgreSQL and a real API server are stopped, frozen and started again under them."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.gateway.process import Gateway, gateway_process, prepare_database, until
from tests.support.apiserver import ROOT, ApiServer, cluster_tool
from tests.support.manifests import agent
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.store_rows import later

from runyard_api.states import RunState
from runyard_kube.client import KubeClient
from runyard_kube.errors import KubeError
from runyard_kube.resources import RUNS
from runyard_store.database import open_database
from runyard_store.runs import finish_unheld

pytestmark = [pytest.mark.apiserver, pytest.mark.postgres, pytest.mark.timeout(180)]
NAMESPACE = "default"
BEAT = b": heartbeat\r\n\r\n"


@dataclass
class Stage:
    """A database, an API server that knows one Agent, and two gateways."""

    postgres: PostgresServer
    database: str
    folder: Path
    api: ApiServer
    first: Gateway
    second: Gateway
    _command: list[str]

    def kill_api_server(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def start_api_server(self) -> None:
        """The same program at the same port, on the etcd that went on."""
        log = (self.folder / "kube-apiserver.log").open("ab")
        child = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self._restarted.append(child)
        _until_answers(self.api)

    def __post_init__(self) -> None:
        self._restarted: list[subprocess.Popen[bytes]] = []

    @property
    def _pid(self) -> int:
        return self._restarted[-1].pid if self._restarted else _api_server_pid(self.folder)

    def end(self) -> None:
        for child in self._restarted:
            child.kill()
            child.wait(10)

    def freeze_postgres(self, number: signal.Signals) -> None:
        """Sends the signal to the server and all that it started."""
        main = int((self.postgres.data / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            os.kill(pid, number)


def _api_server_pid(folder: Path) -> int:
    return int(json.loads((folder / "kube-apiserver.pid.json").read_text())["pid"])


def _until_answers(api: ApiServer) -> None:
    end = time.monotonic() + 60
    while api.try_kubectl("get", "agents").returncode != 0:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("apiserver")
    kubectl = Path(cluster_tool("bin")) / "kubectl"
    with contextlib.ExitStack() as stack:
        api = ApiServer(Path(cluster_tool("apiserver", "up", "--dir", str(folder))), kubectl)
        stack.callback(cluster_tool, "apiserver", "down", "--dir", str(folder))
        api.kubectl("apply", "-f", str(ROOT / "crds"))
        api.kubectl("wait", "--for=condition=Established", "--timeout=15s", "-f", str(ROOT / "crds"))
        api.kubectl("create", "-f", "-", stdin=json.dumps(agent("hello", graphs={"chat": "./a.py:g"})))
        postgres = stack.enter_context(postgres_server())
        database = postgres.new_database()
        prepare_database(database)
        first, second = (
            stack.enter_context(gateway_process(_made(folder / name), database, api.kubeconfig, NAMESPACE))
            for name in ("first", "second")
        )
        command = Path(f"/proc/{_api_server_pid(folder)}/cmdline").read_text().rstrip("\0").split("\0")
        stage = Stage(postgres, database, folder, api, first, second, command)
        stack.callback(stage.end)
        yield stage


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture
async def http(stage: Stage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.first.client() as http:
        yield http


async def new_thread(http: httpx.AsyncClient) -> str:
    return str((await http.post("/threads", json={})).json()["thread_id"])


class Stream:
    """A run's stream that is read while other things happen."""

    def __init__(self, response: httpx.Response) -> None:
        self.run_id = response.headers["content-location"].rpartition("/")[2]
        self.content, self._response = b"", response
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._response.aiter_raw():
            self.content += chunk

    async def beats(self, more: int) -> None:
        """Waits for so many heartbeats more."""
        wanted = self.content.count(BEAT) + more
        async with asyncio.timeout(60):
            while self.content.count(BEAT) < wanted:
                assert not self._reader.done(), self.content
                await asyncio.sleep(0.05)

    async def end(self) -> list[bytes]:
        """The names of all events, heartbeats left out."""
        await asyncio.wait_for(self._reader, 60)
        frames = self.content.replace(BEAT, b"").split(b"\r\n\r\n")[:-1]
        return [frame.split(b"\r\n")[0].removeprefix(b"event: ") for frame in frames]


@contextlib.asynccontextmanager
async def streaming(http: httpx.AsyncClient, thread: str) -> AsyncIterator[Stream]:
    body = {"assistant_id": "chat", "input": {}}
    async with http.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
        assert response.status_code == 200
        yield Stream(response)


async def run_object(stage: Stage, run_id: str) -> dict[str, Any]:
    """The run's object, once it is there."""
    async with await KubeClient.open(stage.api.kubeconfig) as kube, asyncio.timeout(60):
        while True:
            with contextlib.suppress(KubeError):
                return await kube.get(RUNS, NAMESPACE, run_id)
            await asyncio.sleep(0.1)


async def finish(stage: Stage, run_id: str) -> None:
    """Ends the run as the operator would: first the row, then the object."""
    error = {"error": "Failed", "message": "by the test"}
    db = await open_database(stage.database, pool_size=1)
    await finish_unheld(db, run_id, RunState.ERROR, error, later(1))
    await db.close()
    async with await KubeClient.open(stage.api.kubeconfig) as kube:
        await kube.patch_status(RUNS, NAMESPACE, run_id, {"state": "error", "error": error})


async def test_a_database_that_stops_is_503_until_it_is_back_and_streams_outlive_it(
    stage: Stage, http: httpx.AsyncClient
) -> None:
    thread = await new_thread(http)
    async with streaming(http, thread) as stream:
        await run_object(stage, stream.run_id)
        stage.postgres.stop()
        try:
            for path in ("/threads", "/runs/wait", f"/threads/{thread}/runs/stream"):
                refused = await http.post(path, json={"assistant_id": "chat"} if "runs" in path else {})
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), path
            assert (await http.get("/ok")).status_code == 200
            assert (await http.get("/ok", params={"check_db": 1})).status_code == 500
            await stream.beats(3)
        finally:
            stage.postgres.start()
        await until(http, "/threads")
        await finish(stage, stream.run_id)
        assert await stream.end() == [b"metadata", b"error", b"end"]
    listed = (await http.get(f"/threads/{thread}/runs")).json()
    assert [run["run_id"] for run in listed] == [stream.run_id]  # what got 503 wasn't committed


async def test_a_database_that_freezes_is_503_and_recovers(stage: Stage, http: httpx.AsyncClient) -> None:
    await new_thread(http)
    stage.freeze_postgres(signal.SIGSTOP)
    try:
        answers = await asyncio.gather(*(http.post("/threads", json={}) for _ in range(60)))
    finally:
        stage.freeze_postgres(signal.SIGCONT)
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["retry-after"] for answer in answers} == {"1"}
    await until(http, "/threads", seconds=60)


async def test_a_run_is_taken_while_the_api_server_is_away_and_gets_its_object_when_it_is_back(
    stage: Stage, http: httpx.AsyncClient
) -> None:
    thread = await new_thread(http)
    async with streaming(http, thread) as before:
        await run_object(stage, before.run_id)
        stage.kill_api_server()
        try:
            async with streaming(http, await new_thread(http)) as during:
                await during.beats(3)
                await before.beats(3)
                stage.start_api_server()
                assert (await run_object(stage, during.run_id))["spec"]["userId"] == "alice"
                for stream in (before, during):
                    await finish(stage, stream.run_id)
                    assert await stream.end() == [b"metadata", b"error", b"end"]
        finally:
            if stage.api.try_kubectl("get", "agents").returncode != 0:
                stage.start_api_server()


async def test_a_run_whose_gateway_is_killed_before_it_made_the_object_is_made_by_another(
    stage: Stage, tmp_path: Path
) -> None:
    with gateway_process(tmp_path, stage.database, stage.api.kubeconfig, NAMESPACE) as doomed:
        async with doomed.client() as http:
            thread = await new_thread(http)
            stage.kill_api_server()
            try:
                run = (await http.post(f"/threads/{thread}/runs", json={"assistant_id": "chat"})).json()
                doomed.process.kill()
                doomed.process.wait(10)
            finally:
                stage.start_api_server()
    made = await run_object(stage, run["run_id"])
    assert (made["spec"]["threadId"], made["spec"]["agentName"]) == (thread, "hello")
    async with stage.second.client() as http:
        assert (await http.get(f"/threads/{thread}/runs/{run['run_id']}")).json()["status"] == "pending"
