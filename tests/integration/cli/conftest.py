"""`runyard dev` as a real process, as a person starts it."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

ROOT = Path(__file__).parents[3]
HELLO = ROOT / "examples" / "hello" / "langgraph.json"
START_SECONDS = 60
COMMAND = [sys.executable, "-m", "runyard_cli", "dev"]


@dataclass
class Dev:
    """A `runyard dev` that answers `client`. `started` is the line that it printed when it did."""

    process: asyncio.subprocess.Process
    started: dict[str, Any]
    client: LangGraphClient

    @property
    def url(self) -> str:
        return str(self.started["url"])

    async def event(self, name: str) -> dict[str, Any]:
        """The next printed line of that event."""
        assert self.process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            async for line in self.process.stdout:
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name:
                    return event
        raise AssertionError(f"the server ended without {name}")

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Sends a signal and gives the exit code."""
        self.process.send_signal(number)
        await asyncio.wait_for(self.process.communicate(), 20)
        assert self.process.returncode is not None
        return self.process.returncode


Start = Callable[..., Awaitable[Dev]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts `runyard dev` on examples/hello and a free port, with the state folder `state` of this test."""
    running: list[asyncio.subprocess.Process] = []
    clients: list[LangGraphClient] = []

    async def begin(*options: str, config: Path = HELLO, state: Path = tmp_path / "state") -> Dev:
        command = [*COMMAND, "--json", "--port", "0", "--config", str(config), "--state", str(state), *options]
        log = (tmp_path / "dev.log").open("ab")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log)
        log.close()
        running.append(process)
        assert process.stdout is not None
        started: dict[str, Any] = {"event": ""}
        while started["event"] != "started":
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
            assert line, (tmp_path / "dev.log").read_text()
            started = json.loads(line)
        clients.append(get_client(url=started["url"], api_key=token_of(started)))
        return Dev(process, started, clients[-1])

    yield begin
    for client in clients:
        await client.aclose()
    for process in running:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def token_of(started: dict[str, Any]) -> str | None:
    """The token that callers of this server must send."""
    return Path(started["token_file"]).read_text().strip() if started["token_file"] else None


async def refused(*options: str) -> str:
    """Runs `runyard dev`, which has to end by itself with exit code 1 before it was ready; gives its stderr."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert (process.returncode, "Ready" in out.decode()) == (1, False), err.decode()
    return err.decode()
