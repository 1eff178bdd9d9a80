"""The real runtime on a unix socket, driven through RuntimeClient, and what tests do with runs."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from runyard_api.events import Event
from runyard_api.internal import RunHeld, RunStart, StateQuery
from runyard_api.payload import RunPayload
from runyard_clients.runtime import SOCKET_BASE_URL, RuntimeClient, StartAnswer, socket_http
from runyard_runtime.runtime import Runtime, start_runtime
from runyard_runtime.serve import serve
from runyard_runtime.settings import Settings
from runyard_store import event_log
from runyard_store.database import Database, open_database
from runyard_store.runs import NewRun, RunRow, create_run, get_run
from runyard_store.threads import ThreadRow, get_thread

PROJECT = Path(__file__).parent / "project" / "langgraph.json"
_numbers = itertools.count()


@dataclass
class Pod:
    """One started runtime, its client, and what tests do with runs."""

    settings: Settings
    db: Database
    runtime: Runtime
    client: RuntimeClient
    socket: Path
    ended: dict[str, RunHeld] = field(default_factory=dict)

    async def create(self, graph_id: str, *, thread_id: str | None = None, **payload: Any) -> RunRow:
        """Stores a run as the gateway does; keyword arguments are the payload's."""
        new = NewRun(
            run_id=str(uuid.uuid4()),
            thread_id=thread_id or str(uuid.uuid4()),
            user_id="u1",
            assistant_id="as1",
            graph_id=graph_id,
            agent_name="test",
            payload=RunPayload(**payload),
            if_not_exists="create",
        )
        return await create_run(self.db, new, datetime.now(UTC))

    async def start(self, run: RunRow, attempt: int = 1, *, deadline: int | None = None) -> StartAnswer:
        start = RunStart(
            thread_id=run.thread_id, graph_id=run.graph_id, attempt=attempt, active_deadline_seconds=deadline
        )
        return await self.client.start_run(run.run_id, start)

    async def run(self, graph_id: str, *, thread_id: str | None = None, **payload: Any) -> "Ended":
        """Creates, starts and reads a run to its end."""
        run = await self.create(graph_id, thread_id=thread_id, **payload)
        await self.start(run)
        return await self.end_of(run)

    async def end_of(self, run: RunRow) -> "Ended":
        events = [event async for event in self.client.events(run.run_id)]
        row = await get_run(self.db, run.run_id)
        return Ended(events, row, await get_thread(self.db, run.thread_id))

    async def over(self, run: RunRow) -> None:
        """Waits until the pod has nothing to do for the run any more."""
        attempt = self.runtime.registry.find(run.run_id)
        assert attempt is not None
        await attempt.wait()

    async def state(self, run: RunRow) -> dict[str, Any]:
        return await self.client.state(run.thread_id, StateQuery(graph_id=run.graph_id))

    async def until_logged(self, run: RunRow) -> None:
        """Waits until the log has something of the run: what a lost attempt hasn't logged yet is lost with it."""
        for _ in range(1000):
            if await event_log.read(self.db, run.run_id, None):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the run's events aren't logged")

    async def until_event(self, run: RunRow, mode: str, containing: bytes = b"") -> None:
        """Waits until the run has emitted such an event."""
        async for event in self.client.events(run.run_id):
            if event.mode == mode and containing in event.data:
                return
        raise AssertionError(f"the run ended without an event {mode} with {containing!r}")


@dataclass
class Ended:
    """A finished run: all its events, its row and its thread's row."""

    events: list[Event]
    run: RunRow
    thread: ThreadRow

    def data(self, mode: str, ns: tuple[str, ...] | None = None) -> list[Any]:
        return [orjson.loads(e.data) for e in self.events if e.mode == mode and ns in (None, e.ns)]

    @property
    def modes(self) -> list[str]:
        return [event.mode for event in self.events]


@asynccontextmanager
async def started_pod(database_url: str, tmp_path: Path, **changes: Any) -> AsyncIterator[Pod]:
    socket = tmp_path / f"runtime-{next(_numbers)}.sock"
    options = {"slots": 4, "drain_seconds": 0.0, "stop_grace_seconds": 5.0, "pool_size": 4, **changes}
    settings = Settings(database_url=database_url, config=PROJECT, **options)
    db = await open_database(database_url, 4)
    runtime = await start_runtime(settings, db)
    listening = await serve(runtime.app, uds=socket)
    try:
        async with socket_http(str(socket)) as http:
            yield Pod(settings, db, runtime, RuntimeClient(SOCKET_BASE_URL, token=None, http=http), socket)
    finally:
        await runtime.drain()
        await runtime.stop()
        await listening.stop()
        await db.close()
