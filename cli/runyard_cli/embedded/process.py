"""The process of `runyard dev`: gateway, dispatcher, runtime and database together in one loop, until a signal.

Called by `serve`. Started from the inside out (database, runtime on a unix socket, dispatcher, gateway on TCP),
stopped the other way round.
"""

import asyncio
import contextlib
import ipaddress
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import uvloop

from runyard_cli.embedded.console_logs import report_logs
from runyard_cli.embedded.dispatcher import Dispatcher
from runyard_cli.embedded.guard import Guard, Rules
from runyard_cli.embedded.options import Options
from runyard_cli.embedded.report import Report, Started
from runyard_cli.embedded.requests import ReportRequests
from runyard_cli.embedded.rows import StoredRows
from runyard_cli.embedded.server import bind, served
from runyard_cli.embedded.token_file import NAME as TOKEN_FILE
from runyard_cli.embedded.token_file import state_token
from runyard_clients.runtime import SOCKET_BASE_URL, RuntimeClient, socket_http
from runyard_gateway.app import Deps, create_app
from runyard_gateway.ports import AgentView
from runyard_gateway.settings import Settings as GatewaySettings
from runyard_process.garbage import spare_what_stays
from runyard_runtime.project import Project
from runyard_runtime.runtime import start_runtime
from runyard_runtime.serve import serve as serve_runtime
from runyard_runtime.settings import Settings as RuntimeSettings
from runyard_store.database import Database, open_database
from runyard_store.migrate import migrate
from runyard_store.runs import count_failures
from runyard_store.urls import sqlite_url

AGENT = "local"
LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 108 with the ending zero."""
DRAIN_SECONDS = 5.0
STOP_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class Start:
    """`began` by the monotonic clock. `after_kill`: the process before didn't end by itself."""

    began: float
    after_kill: bool


def run(options: Options, project: Project, state: Path, report: Report, start: Start) -> None:
    """Runs until SIGINT or SIGTERM. Raises CommandError, ProjectError or a RunyardError when it can't start."""
    report_logs(report, options.detail)
    migrate(database_url(state))
    with runtime_socket(state) as socket_path, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, project, Folder(state, socket_path), report, start))


@dataclass(frozen=True)
class Folder:
    """The state folder, and the runtime's socket in it."""

    state: Path
    socket: Path


async def _serve(options: Options, project: Project, folder: Folder, report: Report, start: Start) -> None:
    state = folder.state
    stopped = _stop_on_signals(report)
    async with AsyncExitStack() as stack:
        db = await open_database(database_url(state))
        stack.push_async_callback(db.close)
        if start.after_kill:
            await count_failures(db)
        listener = stack.enter_context(bind(options.host, options.port))
        runtime = await stack.enter_async_context(_runtime(options, db, state, folder.socket))
        graphs = (await runtime.info()).graphs
        agent = AgentView(AGENT, graphs, True, _now())
        dispatcher = Dispatcher(rows=StoredRows(db, _now), runtime=runtime, agent=agent, report=report)
        stack.push_async_callback(dispatcher.stop)
        deps = Deps(db=db, runs=dispatcher, now=_now, stopping=stopped)
        rules = rules_of(options, state, listener.getsockname()[0])
        app = ReportRequests(Guard(create_app(GatewaySettings(auth="none"), deps), rules), report)
        await stack.enter_async_context(served(app, listener))
        taken_up = await dispatcher.start()
        report.started(
            Started(
                version("runyard"),
                _url(listener.getsockname()),
                {graph: project.graphs.get(graph, "") for graph in graphs},
                options.config,
                state,
                taken_up,
                time.monotonic() - start.began,
                token_file=state / TOKEN_FILE if rules.token else None,
            )
        )
        spare_what_stays()
        await stopped.wait()


@contextlib.asynccontextmanager
async def _runtime(options: Options, db: Database, state: Path, socket_path: Path) -> AsyncIterator[RuntimeClient]:
    """The runtime with the project's graphs, served on the unix socket; gives a client of it. It drains at the end."""
    settings = RuntimeSettings(
        database_url=database_url(state),
        config=options.config,
        slots=options.slots,
        pod_name=AGENT,
        drain_seconds=DRAIN_SECONDS,
        stop_grace_seconds=STOP_GRACE_SECONDS,
    )
    async with AsyncExitStack() as stack:
        runtime = await start_runtime(settings, db)
        stack.push_async_callback(runtime.stop)
        server = await serve_runtime(runtime.app, uds=socket_path)
        stack.push_async_callback(server.stop)
        stack.push_async_callback(runtime.drain)
        http = await stack.enter_async_context(socket_http(str(socket_path)))
        yield RuntimeClient(SOCKET_BASE_URL, token=None, http=http)


def rules_of(options: Options, state: Path, address: str) -> Rules:
    """Who is answered at the address that is listened on: beyond the loopback, those who have the token.

    Raises CommandError when the token's file can't be used.
    """
    here = ipaddress.ip_address(address).is_loopback
    return Rules(
        hosts=frozenset(name.lower() for name in (*options.allow_hosts, options.host)),
        addresses=not here,
        origins=frozenset(origin.rstrip("/") for origin in options.allow_origins),
        token=state_token(state) if options.token or not here else None,
    )


def _stop_on_signals(report: Report) -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM; a second SIGINT interrupts at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        report.stopping()
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return stopped


@contextlib.contextmanager
def runtime_socket(state: Path) -> Iterator[Path]:
    """The path of the runtime's unix socket, in a folder that only this user can enter.

    Below the state folder; in a temporary folder where that path would be longer than the kernel allows.
    """
    folder = state / "run"
    with contextlib.ExitStack() as stack:
        if len(bytes(folder / "runtime.sock")) > LONGEST_SOCKET_PATH:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runyard-")))
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "runtime.sock"
        path.unlink(missing_ok=True)
        yield path
        path.unlink(missing_ok=True)


def database_url(state: Path) -> str:
    """The sqlite database in the state folder, as runyard_store takes it."""
    return sqlite_url(state / "runyard.db")


def _url(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = address[0], address[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _now() -> datetime:
    return datetime.now(UTC)
