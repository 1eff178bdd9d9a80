"""A real operator process, and what tests do with Agents and Runs around it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from tests.integration.operator.kubelet import Kubelet
from tests.support.manifests import agent, hand_written_run

from runyard_api.crd import Manifest
from runyard_api.names import LABEL_AGENT
from runyard_api.payload import RunPayload
from runyard_api.run import Run, run_object
from runyard_api.states import RunState, Strategy
from runyard_kube.client import KubeClient, Selection
from runyard_kube.errors import AlreadyExists
from runyard_kube.resources import AGENTS, EVENTS, PODS, RUNS
from runyard_operator.world import utc_now
from runyard_store.database import Database
from runyard_store.runs import NewRun, RunRow, create_run, get_run, note_object

PATIENCE = 30.0
START_PATIENCE = 90.0
KEY = "k" * 64


class OperatorProcess:
    """`python -m runyard_operator`, as a container would run it."""

    def __init__(self, environment: dict[str, str], log: Path, *, name: str = "first") -> None:
        self.port = free_port()
        self.name = name
        self._environment = environment | {"RUNYARD_PROBE_PORT": str(self.port), "RUNYARD_POD_NAME": name}
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it and waits until it is ready."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "runyard_operator", env=os.environ | self._environment, stdout=log, stderr=log
            )
        async with httpx.AsyncClient() as http:
            await until(lambda: self._ready(http), "the operator is ready", START_PATIENCE)

    def twin(self, name: str) -> "OperatorProcess":
        """Another one with the same settings, not started."""
        return OperatorProcess(self._environment, self._log.with_suffix(f".{name}.log"), name=name)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def said(self) -> str:
        """All it has logged."""
        return self._log.read_text()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it and returns its exit code."""
        if self._process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        code = await self._process.wait()
        self._process = None
        return code

    async def _ready(self, http: httpx.AsyncClient) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self._log.read_text()[-3000:]
        try:
            return (await http.get(f"http://127.0.0.1:{self.port}/readyz")).status_code == 200
        except httpx.HTTPError:
            return False


@dataclass
class Place:
    """One namespace with its own database, operator and kubelet, and what tests do there."""

    kube: KubeClient
    namespace: str
    db: Database
    operator: OperatorProcess
    kubelet: Kubelet
    folder: Path
    gates: int = 0
    beginning: str = ""
    """A resourceVersion before anything that happened here."""

    def gate(self) -> Path:
        """A file that doesn't exist yet: a `gated` run waits for it."""
        self.gates += 1
        return self.folder / f"gate-{self.gates}"

    async def agent(self, name: str = "hello", *, ready: bool = True, **spec: Any) -> None:
        """Applies an Agent unless it is there, and waits until it is ready."""
        with contextlib.suppress(AlreadyExists):
            await self.kube.create(AGENTS, self.namespace, agent(name, **spec))
        if ready:
            await self.until_agent(name, lambda status: condition(status, "Ready").get("status") == "True")

    async def create(
        self,
        graph_id: str = "echo",
        *,
        thread_id: str | None = None,
        strategy: Strategy = Strategy.ENQUEUE,
        agent_name: str = "hello",
        **payload: Any,
    ) -> RunRow:
        """Stores a run and makes its object, as the gateway does; keyword arguments are the payload's."""
        now = utc_now()
        new = NewRun(
            run_id=str(uuid4()),
            thread_id=thread_id or str(uuid4()),
            user_id="default",
            assistant_id=str(uuid4()),
            graph_id=graph_id,
            agent_name=agent_name,
            payload=RunPayload(**payload),
            multitask_strategy=strategy,
            if_not_exists="create",
        )
        row = await create_run(self.db, new, now)
        made = await self.kube.create(
            RUNS,
            self.namespace,
            run_object(
                run_id=row.run_id,
                namespace=self.namespace,
                agent_name=agent_name,
                graph_id=graph_id,
                assistant_id=row.assistant_id,
                thread_id=row.thread_id,
                user_id=row.user_id,
                sequence=row.sequence,
                strategy=strategy,
                on_disconnect="continue",
                durability="async",
                stream_mode=["values"],
            ),
        )
        await note_object(self.db, row.run_id, made["metadata"]["uid"], now)
        return row

    async def apply_run(self, name: str, **spec: Any) -> Manifest:
        """Applies a Run as a person does with kubectl."""
        return await self.kube.create(RUNS, self.namespace, hand_written_run(name, **spec))

    async def until_run(self, name: str, wanted: Callable[[Run], bool]) -> Run:
        """Watches a Run until it is as wanted."""
        raw = await self._until(RUNS, name, lambda raw: wanted(Run.from_manifest(raw)))
        return Run.from_manifest(raw)

    async def until_agent(self, name: str, wanted: Callable[[Manifest], bool]) -> Manifest:
        """Watches an Agent until its status is as wanted; gives the status."""
        raw = await self._until(AGENTS, name, lambda raw: wanted(raw.get("status") or {}))
        status: Manifest = raw["status"]
        return status

    async def ended(self, name: str) -> Run:
        return await self.until_run(name, lambda run: run.state.finished)

    async def running(self, name: str) -> Run:
        return await self.until_run(name, lambda run: run.state is RunState.RUNNING)

    async def row(self, run_id: str) -> RunRow:
        return await get_run(self.db, run_id)

    async def patches(self, name: str) -> list[str]:
        """The states of a Run that were ever stored, in order, by the history that the API server still has."""
        raw = await self.kube.get(RUNS, self.namespace, name)
        states: list[str] = []
        watch = self.kube.watch(
            RUNS,
            self.namespace,
            resource_version=self.beginning,
            selection=Selection(fields=f"metadata.name={name}"),
        )
        async with aclosing(watch) as events:
            async for event in events:
                states.append(event.object["status"]["state"])
                if event.object["metadata"]["resourceVersion"] == raw["metadata"]["resourceVersion"]:
                    return states
        raise AssertionError("the watch ended")

    async def events(self, name: str) -> list[str]:
        """Reasons of the Events about an object, in the order they happened."""
        listing = await self.kube.list(EVENTS, self.namespace)
        about = [raw for raw in listing.items if raw["regarding"]["name"] == name]
        return [raw["reason"] for raw in sorted(about, key=lambda raw: str(raw["eventTime"]))]

    async def pods(self, agent_name: str) -> list[str]:
        """Names of an Agent's pods."""
        listing = await self.kube.list(PODS, self.namespace, selection=Selection(labels=f"{LABEL_AGENT}={agent_name}"))
        return sorted(raw["metadata"]["name"] for raw in listing.items)

    async def open(self) -> None:
        """Starts kubelet and operator."""
        self.beginning = (await self.kube.list(RUNS, self.namespace)).resource_version
        await self.kubelet.start()
        await self.operator.start()

    async def _until(self, resource: Any, name: str, wanted: Callable[[Manifest], bool]) -> Manifest:
        selection = Selection(fields=f"metadata.name={name}")
        listing = await self.kube.list(resource, self.namespace, selection=selection)
        last: Manifest = listing.items[0] if listing.items else {}
        if last and wanted(last):
            return last
        watch = self.kube.watch(
            resource, self.namespace, resource_version=listing.resource_version, selection=selection
        )
        try:
            async with asyncio.timeout(PATIENCE), aclosing(watch) as events:
                async for event in events:
                    last = event.object
                    if event.type != "DELETED" and wanted(last):
                        return last
        except TimeoutError:
            pass
        raise AssertionError(f"{name} never became as wanted; last: {last.get('status')}")


def condition(status: Manifest, kind: str) -> Manifest:
    """The condition of this type, or an empty one."""
    return next((c for c in status.get("conditions") or () if c["type"] == kind), {})


async def until(true: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
    """Waits until `true()`, which may be awaitable, holds."""
    try:
        async with asyncio.timeout(patience):
            while True:
                answer = true()
                if await answer if asyncio.iscoroutine(answer) else answer:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {patience} s: {what}") from None


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
