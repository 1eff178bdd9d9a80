"""The runtime as one object: what `__main__` serves in an agent pod and `runyard dev` runs in its own process.

runtime = await start_runtime(settings, db)     # imports the graphs
server = await serve(runtime.app, uds=path)     # or port=…
…
await runtime.drain(); await runtime.stop(); await server.stop()
"""

import asyncio
import os
import platform
import sys
import uuid
from importlib.metadata import version

import structlog
from starlette.applications import Starlette

from runyard_api.internal import RuntimeInfo, StatusMessage
from runyard_runtime.app import Services, create_app
from runyard_runtime.attempt import Engine
from runyard_runtime.graph_loop import GraphLoop
from runyard_runtime.graphs import Graphs, load_graphs
from runyard_runtime.project import Project, apply_project, read_project
from runyard_runtime.registry import Registry
from runyard_runtime.settings import Settings
from runyard_runtime.status import StatusHub
from runyard_runtime.threads import Threads
from runyard_store.checkpoints import open_checkpointers
from runyard_store.database import Database

_log = structlog.get_logger(__name__)
_TOLD = ("runyard", "langgraph", "langgraph-checkpoint-postgres")
_LAST_STOP_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_SWITCH_SECONDS = 0.001


async def start_runtime(settings: Settings, db: Database) -> "Runtime":
    """Imports the graphs and opens what runs need; nothing listens yet. `db` is borrowed, and open as long as it runs.

    Call it on the loop that will serve the app. Raises ProjectError (NoGraphs, BadProject, ImportFailed), Unavailable.
    """
    project = read_project(settings.config, settings.graphs)
    # Server and graphs share the interpreter: at the default 5 ms each system call of one loop may cost that, waiting
    # for the other to let go.
    sys.setswitchinterval(_SWITCH_SECONDS)
    loop = GraphLoop(settings.slots)
    loop.start()
    try:
        graphs = await loop.run(_import_graphs(project))
        checkpointers = await loop.run(open_checkpointers(settings.database_url, settings.pool_size))
    except BaseException:
        await loop.stop()
        raise
    engine = Engine(
        db=db,
        graphs=graphs,
        graph_loop=loop,
        checkpointers=checkpointers,
        recursion_limit=settings.recursion_limit,
        stop_grace_seconds=settings.stop_grace_seconds,
    )
    return Runtime(settings, engine)


class Runtime:
    """A started runtime. `app` is the ASGI app to serve, `boot_id` new for each start."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.boot_id = uuid.uuid4().hex
        self._settings, self._engine = settings, engine
        self._versions = {name: version(name) for name in _TOLD}
        self._versions["python"] = platform.python_version()
        holder = f"{settings.pod_name}/{self.boot_id}"
        self._hub = StatusHub(self._status, self._figures)
        self.registry = Registry(
            engine, slots=settings.slots, holder=holder, publish=self._hub.publish, max_runs=settings.max_runs
        )
        engine.metrics.gauge("slots", "Runs that may be executed at a time.", lambda: settings.slots)
        engine.metrics.gauge("slots_busy", "Slots in use.", lambda: self.registry.busy)
        self.app = self._make_app(holder)

    async def drain(self, seconds: float | None = None) -> None:
        """Takes no new run, lets the held ones stop at a step boundary within `seconds` (None: the setting), then stops
        them at once. They go on elsewhere; the app still answers meanwhile."""
        self.registry.draining = True
        self._hub.nudge()
        patience = self._settings.drain_seconds if seconds is None else seconds
        await self.registry.settled()
        for attempt in self.registry.running():
            attempt.drain(now=False)
        await self._all_over(patience)
        for attempt in self.registry.running():
            attempt.drain(now=True)
        await self._all_over(_LAST_STOP_SECONDS)

    async def stop(self) -> None:
        """Ends the status streams, the graph loop and its connections. Runs that aren't drained are left to others."""
        self._hub.close()
        engine = self._engine
        if engine.graph_loop.alive:
            await engine.graph_loop.finish(engine.checkpointers.close(), _CLOSE_SECONDS)
        await engine.graph_loop.stop()

    async def _all_over(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(attempt.wait()) for attempt in self.registry.running()]
        if waits:
            await asyncio.wait(waits, timeout=seconds)

    def _make_app(self, holder: str) -> Starlette:
        services = Services(
            db=self._engine.db,
            registry=self.registry,
            threads=Threads(self._engine, holder),
            hub=self._hub,
            snapshot=self._figures,
            info=self._info,
            healthy=lambda: self._engine.graph_loop.alive,
            metrics=self._engine.metrics.text,
        )
        return create_app(services, token_sha256=self._settings.token_sha256)

    def _status(self) -> StatusMessage:
        return self._figures().model_copy(update={"runs": tuple(self.registry.reports())})

    def _figures(self) -> StatusMessage:
        registry = self.registry
        return StatusMessage(
            kind="snapshot",
            boot_id=self.boot_id,
            slots=registry.slots,
            busy=registry.busy,
            draining=registry.draining,
            left=registry.left,
            versions=self._versions,
        )

    def _info(self) -> RuntimeInfo:
        graphs = self._engine.graphs.ids
        return RuntimeInfo(boot_id=self.boot_id, slots=self._settings.slots, graphs=graphs, versions=self._versions)


async def _import_graphs(project: Project) -> Graphs:
    """On the graph loop: what user modules make at import belongs to the loop that will run it."""
    apply_project(project, os.environ)
    for key in project.ignored:
        _log.warning("langgraph.json has a key without effect here", key=key)
    return load_graphs(project)
