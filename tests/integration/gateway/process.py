"""`runyard-gateway` as a process for tests, on whatever database and API server it is given."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.support.store_rows import later

from runyard_store.database import open_database
from runyard_store.keys import add_key
from runyard_store.migrate import migrate

COMMAND = [sys.executable, "-m", "runyard_gateway"]
KEY = "secret"


@dataclass
class Gateway:
    """A gateway process, and where it listens."""

    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.AsyncClient:
        """A client of alice's."""
        return httpx.AsyncClient(base_url=self.url, headers={"x-api-key": KEY}, timeout=60)

    def memory(self, kind: str = "VmRSS") -> int:
        """MiB that the process holds now, or (VmHWM) held at most."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(kind)).split()[1]) // 1024


def prepare_database(url: str) -> None:
    """Makes the schema and alice's key."""

    async def add() -> None:
        db = await open_database(url, pool_size=1)
        await add_key(db, KEY, "alice", "test", later(0))
        await db.close()

    migrate(url)
    asyncio.run(add())


@contextlib.contextmanager
def gateway_process(
    folder: Path, database_url: str, kubeconfig: Path, namespace: str, **settings: str
) -> Iterator[Gateway]:
    """Runs on a database of `prepare_database` until the block ends, when it is killed if it still lives."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "key").write_text("0123456789abcdef0123456789abcdef")
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "RUNYARD_DATABASE_URL": database_url,
        "RUNYARD_AGENTS_NAMESPACE": namespace,
        "RUNYARD_TOKEN_KEY_FILE": str(folder / "key"),
        "RUNYARD_PORT": str(port),
        "RUNYARD_HEARTBEAT_SECONDS": "0.2",
        **settings,
    }
    process = subprocess.Popen(COMMAND, env=environment)
    gateway = Gateway(process, port)
    try:
        _until_up(gateway)
        yield gateway
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def _until_up(gateway: Gateway) -> None:
    """Waits until it has the agents, which it lists for nobody before."""
    end = time.monotonic() + 60
    while gateway.process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.post(f"{gateway.url}/assistants/search", json={}, headers={"x-api-key": KEY}, timeout=10)
            if answer.status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"the gateway isn't up; its status is {gateway.process.poll()}")


async def until(http: httpx.AsyncClient, path: str, *, status: int = 200, seconds: float = 30) -> httpx.Response:
    """The first answer to a POST of nothing that has this status."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                if (answer := await http.post(path, json={})).status_code == status:
                    return answer
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
