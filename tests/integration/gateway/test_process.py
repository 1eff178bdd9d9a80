"""`runyard-gateway` as a process against a real API server: its start, one run's way, and its end."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.support.apiserver import ApiServer
from tests.support.manifests import agent
from tests.support.store_rows import later

from runyard_api.states import RunState
from runyard_kube.client import KubeClient
from runyard_kube.resources import AGENTS, RUNS
from runyard_store.database import Database, open_database
from runyard_store.keys import add_key
from runyard_store.migrate import migrate
from runyard_store.runs import finish_unheld, get_run

pytestmark = pytest.mark.apiserver
COMMAND = [sys.executable, "-m", "runyard_gateway"]


@dataclass
class Gateway:
    """A gateway that answers."""

    process: asyncio.subprocess.Process
    http: httpx.AsyncClient
    db: Database

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 15)


@asynccontextmanager
async def started(folder: Path, kubeconfig: Path, namespace: str) -> AsyncIterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"sqlite:///{folder / 'gateway.db'}"
    migrate(url)
    (folder / "key").write_text("0123456789abcdef0123456789abcdef")
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "RUNYARD_DATABASE_URL": url,
        "RUNYARD_AGENTS_NAMESPACE": namespace,
        "RUNYARD_TOKEN_KEY_FILE": str(folder / "key"),
        "RUNYARD_PORT": str(port),
        "RUNYARD_HEARTBEAT_SECONDS": "0.2",
    }
    db = await open_database(url)
    await add_key(db, "secret", "alice", "test", later(0))
    process = await asyncio.create_subprocess_exec(*COMMAND, env=environment)
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, headers={"x-api-key": "secret"}, timeout=15) as http:
        try:
            await _until_up(http)
            yield Gateway(process, http, db)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await db.close()


async def _until_up(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                if (await http.post("/assistants/search", json={})).json():
                    return
            except httpx.ConnectError:
                pass
            await asyncio.sleep(0.05)


async def test_a_run_becomes_an_object_and_its_stream_lives_until_the_end_or_the_stop(
    tmp_path: Path, api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    await kube.create(AGENTS, namespace, agent("hello", graphs={"chat": "./a.py:g"}))
    async with started(tmp_path, api_server.kubeconfig, namespace) as gateway:
        thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        path = f"/threads/{thread}/runs"
        body = {"assistant_id": "chat", "input": {"a": 1}, "on_disconnect": "cancel"}
        async with gateway.http.stream("POST", f"{path}/stream", json=body) as stream:
            run = stream.headers["content-location"].rpartition("/")[2]
            content = b""
            async for chunk in stream.aiter_raw():
                content += chunk
                if content.count(b": heartbeat\r\n\r\n") == 2:
                    made = await kube.get(RUNS, namespace, run)
                    assert made["spec"]["userId"] == "alice"
                    error = {"error": "AgentNotReady", "message": "no pod"}
                    await finish_unheld(gateway.db, run, RunState.ERROR, error, later(1))
                    await kube.patch_status(RUNS, namespace, run, {"state": "error", "error": error})
        frames = content.replace(b": heartbeat\r\n\r\n", b"").split(b"\r\n\r\n")
        assert [f.split(b"\r\n")[0] for f in frames[:-1]] == [b"event: metadata", b"event: error", b"event: end"]
        async with (
            gateway.http.stream("POST", f"{path}/stream", json=body) as stream,
            gateway.http.stream("POST", f"{path}/wait", json=body) as wait,
        ):
            waited = wait.headers["content-location"].rpartition("/")[2]
            stopping = asyncio.create_task(gateway.stop())
            assert b"event: end" not in b"".join([chunk async for chunk in stream.aiter_raw()])
            assert await stopping == 0
            with pytest.raises(httpx.RemoteProtocolError):
                await wait.aread()
        assert (await get_run(gateway.db, waited)).cancel_action is None


BAD = {
    "no namespace": ({"RUNYARD_AGENTS_NAMESPACE": ""}, 2, "RUNYARD_AGENTS_NAMESPACE must be set"),
    "a bad port": ({"RUNYARD_PORT": "x"}, 2, "RUNYARD_PORT must be a whole number from 1 to 65535, not 'x'"),
    "no key file": (
        {"RUNYARD_TOKEN_KEY_FILE": "/nope"},
        2,
        "RUNYARD_TOKEN_KEY_FILE /nope can't be read: No such file or directory",
    ),
    "a name with a letter too few": (
        {"RUNYARD_HEARTBEAT_SECOND": "1"},
        2,
        "RUNYARD_HEARTBEAT_SECOND is no setting; RUNYARD_HEARTBEAT_SECONDS is",
    ),
    "a database of another kind": ({"RUNYARD_DATABASE_URL": "mysql://x"}, 1, "mysql"),
}


@pytest.mark.parametrize(("change", "code", "words"), BAD.values(), ids=BAD.keys())
async def test_a_bad_setting_stops_the_start_with_one_line(
    tmp_path: Path, api_server: ApiServer, change: dict[str, str], code: int, words: str
) -> None:
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef")
    environment = {
        **os.environ,
        "KUBECONFIG": str(api_server.kubeconfig),
        "RUNYARD_DATABASE_URL": f"sqlite:///{tmp_path / 'x.db'}",
        "RUNYARD_AGENTS_NAMESPACE": "agents",
        "RUNYARD_TOKEN_KEY_FILE": str(tmp_path / "key"),
        **change,
    }
    process = await asyncio.create_subprocess_exec(
        *COMMAND, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 20)
    lines = err.decode().strip().splitlines()
    assert (process.returncode, out, len(lines)) == (code, b"", 1), err.decode()
    assert lines[0].startswith("runyard-gateway")
    assert words in lines[0]
