"""The process of an agent pod: killed, terminated, and failing to start."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest
from tests.integration.runtime.harness import PROJECT, Pod, started_pod

from runyard_api.errors import Unauthenticated, Unavailable
from runyard_api.internal import RunStart
from runyard_api.tokens import token_hash
from runyard_clients.runtime import RuntimeClient, pooled_http
from runyard_runtime.__main__ import run
from runyard_runtime.runtime import start_runtime
from runyard_runtime.serve import serve
from runyard_runtime.settings import Settings
from runyard_store.database import open_database

TOKEN = "t0ken"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}

pytestmark = pytest.mark.timeout(60)  # starts interpreters


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment(database_url: str, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "RUNYARD_DATABASE_URL": database_url,
        "RUNYARD_CONFIG": str(PROJECT),
        "RUNYARD_PORT": str(port),
        "RUNYARD_TOKEN_SHA256": token_hash(TOKEN),
        "RUNYARD_DRAIN_SECONDS": "5",
    }


@contextlib.asynccontextmanager
async def _process(database_url: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, RuntimeClient]]:
    port = _free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runyard_runtime", env=_environment(database_url, port)
    )
    async with pooled_http() as http:
        try:
            client = RuntimeClient(f"http://127.0.0.1:{port}", token=TOKEN, http=http)
            await _answers(client)
            yield process, client
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _answers(client: RuntimeClient) -> None:
    async with asyncio.timeout(40):
        for _ in itertools.count():
            with contextlib.suppress(Unavailable):
                await client.ping()
                return
            await asyncio.sleep(0.05)


async def test_a_run_survives_the_kill_of_its_process(database_url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with started_pod(database_url, tmp_path) as pod:
        queued = await pod.create("gated", input={"log": [], "gate": str(gate)}, stream_mode=["updates", "values"])
        async with _process(database_url) as (process, client):
            await client.start_run(queued.run_id, RunStart(thread_id=queued.thread_id, graph_id="gated", attempt=1))
            async for event in client.events(queued.run_id):
                if event.mode == "updates":
                    seen = event.id
                    break
            await _in_log(pod, queued.run_id)
            process.kill()
        gate.touch()
        assert (await pod.start(queued, attempt=2)).started
        ended = await pod.end_of(queued)
        rest = [event async for event in pod.client.events(queued.run_id, seen)]
    assert ended.thread.values["log"] == ["a", "through", "z"]
    assert ended.run.attempt == 2
    again = next(i for i, e in enumerate(ended.events) if e.id.attempt == 2)
    assert ended.modes[again : again + 2] == ["metadata", "values"]
    assert orjson.loads(ended.events[again].data)["resumed_step"] == 1
    assert rest == [event for event in ended.events if event.id > seen]
    assert sum(b'"a"' in event.data for event in ended.events if event.mode == "updates") == 1


async def _in_log(pod: Pod, run_id: str) -> None:
    """Waits until the other process has written the run's second event: it writes every 50 ms."""
    async with asyncio.timeout(10):
        for _ in itertools.count():
            if len([event async for event in pod.client.events(run_id)]) >= 3:
                return
            await asyncio.sleep(0.02)


async def test_sigterm_drains_and_ends_the_process(sqlite_template: Path, tmp_path: Path) -> None:
    gate, url = tmp_path / "gate", f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'runs.db')}"
    async with started_pod(url, tmp_path) as pod:
        queued = await pod.create("gated", input={"log": [], "gate": str(gate)}, stream_mode=["updates"])
        async with _process(url) as (process, client):
            await client.start_run(queued.run_id, RunStart(thread_id=queued.thread_id, graph_id="gated", attempt=1))
            async for event in client.events(queued.run_id):
                if event.mode == "updates":
                    break
            process.send_signal(signal.SIGTERM)
            async for message in client.status():
                if message.draining:
                    break
            gate.touch()
            assert await asyncio.wait_for(process.wait(), 20) == 0
        assert (await pod.start(queued, attempt=2)).started
        ended = await pod.end_of(queued)
    assert ended.thread.values["log"] == ["a", "through", "z"]
    assert [data for data in ended.data("updates") if "gate" in data] == [{"gate": {"log": ["through"]}}]


async def test_a_wrong_token_opens_nothing_but_health(sqlite_template: Path, tmp_path: Path) -> None:
    port = _free_port()
    settings = Settings(f"sqlite:///{sqlite_template}", PROJECT, token_sha256=token_hash(TOKEN))
    db = await open_database(settings.database_url)
    runtime = await start_runtime(settings, db)
    server = await serve(runtime.app, port=port, host="127.0.0.1")
    base = f"http://127.0.0.1:{port}"
    async with pooled_http() as pooled, httpx.AsyncClient() as http:
        for token in (None, "wrong"):
            with pytest.raises(Unauthenticated):
                await RuntimeClient(base, token=token, http=pooled).ping()
        assert (await RuntimeClient(base, token=TOKEN, http=pooled).ping()).kind == "snapshot"
        assert (await http.get(f"{base}/healthz")).json() == {"ok": True}
        unknown = await http.get(f"{base}/internal/v1/nothing", headers=AUTHORIZED)
        assert (unknown.status_code, unknown.json()["reason"]) == (404, "NotFound")
        body = b'{"thread_id": "t", "graph_id": "g", "attempt": "x"}'
        bad = await http.put(f"{base}/internal/v1/runs/r1", content=body, headers=AUTHORIZED)
        assert (bad.status_code, bad.json()["detail"].startswith("attempt:")) == (422, True)
    await runtime.stop()
    await server.stop()
    await db.close()


@pytest.mark.parametrize(
    ("config", "reason", "message"),
    [
        (None, "NoGraphs", "langgraph.json"),
        ({"graphs": {}}, "NoGraphs", "names no graphs"),
        ({"graphs": {"g": "./broken.py:graph"}}, "ImportFailed", "ModuleNotFoundError: No module named 'not_there'"),
        ({"graphs": {"g": "./other.py:nothing"}}, "ImportFailed", "nothing"),
    ],
)
async def test_a_start_that_fails_says_why_where_the_operator_looks(
    tmp_path: Path,
    sqlite_template: Path,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, object] | None,
    reason: str,
    message: str,
) -> None:
    (tmp_path / "broken.py").write_text("import not_there\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    if config is not None:
        (tmp_path / "langgraph.json").write_bytes(orjson.dumps(config))
    log = tmp_path / "termination-log"
    url = f"sqlite:///{sqlite_template}"
    assert await run(Settings(url, tmp_path / "langgraph.json", termination_log=log)) == 1
    told = orjson.loads(log.read_bytes())
    assert told["reason"] == reason
    assert message in told["message"]
    assert capsys.readouterr().err == f"{reason}: {told['message']}\n"
