"""Gateway, dispatcher, runtime and database in one thread, as `runyard dev` puts them together, but with API keys and a
quick heartbeat."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from runyard_cli.embedded.board import Entry
from runyard_cli.embedded.dispatcher import Dispatcher
from runyard_cli.embedded.report import Started
from runyard_cli.embedded.rows import StoredRows
from runyard_cli.embedded.server import served
from runyard_clients.runtime import SOCKET_BASE_URL, RuntimeClient, socket_http
from runyard_gateway.app import Deps, create_app
from runyard_gateway.ports import AgentView
from runyard_gateway.settings import Settings
from runyard_runtime.runtime import start_runtime
from runyard_runtime.serve import serve as serve_runtime
from runyard_runtime.settings import Settings as RuntimeSettings
from runyard_store.database import Database, open_database
from runyard_store.keys import add_key
from runyard_store.migrate import migrate

ROOT = Path(__file__).parents[3]
GRAPHS = {
    **{
        name: f"{ROOT}/tests/graphs/graphs.py:{name}"
        for name in ("stub", "slow", "failing", "nested", "tokens", "steps")
    },
    "approval": f"{ROOT}/examples/hello/approval.py:graph",
}
SETTINGS = Settings(auth="api-key", heartbeat_seconds=0.2)


@dataclass(frozen=True)
class World:
    """Where the gateway answers, and the keys of two users."""

    url: str
    alice: str = "key-of-alice"
    bob: str = "key-of-bob"


class Silent:
    """A report that says nothing."""

    def started(self, started: Started) -> None: ...

    def stopping(self) -> None: ...

    def request(self, method: str, path: str, status: int, seconds: float) -> None: ...

    def run_started(self, run: Entry) -> None: ...

    def run_ended(self, run: Entry, seconds: float | None) -> None: ...


@contextlib.contextmanager
def running_world(folder: Path, settings: Settings = SETTINGS, database_url: str | None = None) -> Iterator[World]:
    """Serves until the block ends, on a database in the folder unless another is given. What goes wrong inside is
    raised here."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        world = World(f"http://127.0.0.1:{listener.getsockname()[1]}")
        loop, stop, up = runner.get_loop(), asyncio.Event(), threading.Event()
        failures: list[BaseException] = []
        database = database_url or f"sqlite:///{folder / 'world.db'}"

        def run() -> None:
            try:
                runner.run(_serve(world, folder, database, settings, listener, stop=stop, up=up))
            except BaseException as error:
                failures.append(error)
                up.set()

        thread = threading.Thread(target=run)
        thread.start()
        up.wait(30)
        try:
            if not failures:
                yield world
        finally:
            if not failures:
                loop.call_soon_threadsafe(stop.set)
            thread.join(20)
        if failures:
            raise failures[0]


async def _serve(
    world: World,
    folder: Path,
    database_url: str,
    settings: Settings,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    up: threading.Event,
) -> None:
    migrate(database_url)
    async with contextlib.AsyncExitStack() as stack:
        db = await open_database(database_url)
        stack.push_async_callback(db.close)
        for user, key in (("alice", world.alice), ("bob", world.bob)):
            await add_key(db, key, user, "test", _now())
        client = await stack.enter_async_context(_runtime(folder, database_url, db))
        agent = AgentView("test", tuple(GRAPHS), True, _now())
        dispatcher = Dispatcher(rows=StoredRows(db, _now), runtime=client, agent=agent, report=Silent())
        await dispatcher.start()
        stack.push_async_callback(dispatcher.stop)
        app: Any = create_app(settings, Deps(db=db, runs=dispatcher, stopping=stop))
        await stack.enter_async_context(served(app, listener))
        up.set()
        await stop.wait()


@contextlib.asynccontextmanager
async def _runtime(folder: Path, database_url: str, db: Database) -> AsyncIterator[RuntimeClient]:
    settings = RuntimeSettings(
        database_url=database_url,
        config=ROOT / "tests" / "graphs" / "langgraph.json",
        graphs=GRAPHS,
        pod_name="test",
        drain_seconds=1,
        stop_grace_seconds=1,
    )
    path = folder / "rt.sock"
    async with contextlib.AsyncExitStack() as stack:
        runtime = await start_runtime(settings, db)
        stack.push_async_callback(runtime.stop)
        server = await serve_runtime(runtime.app, uds=path)
        stack.push_async_callback(server.stop)
        stack.push_async_callback(runtime.drain)
        http = await stack.enter_async_context(socket_http(str(path)))
        yield RuntimeClient(SOCKET_BASE_URL, token=None, http=http)


def _now() -> datetime:
    return datetime.now(UTC)
