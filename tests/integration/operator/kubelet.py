"""Plays the kubelet for agent pods: there are no nodes here, so each pod becomes a real runtime on a loopback address.

The address is the pod's own (127.x.y.z), the port the one that its spec names, the settings those of its environment.
What an image would do is told by its name: `missing…` can't be pulled, `broken…` fails to import.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import os
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runyard_api.crd import Manifest, format_time
from runyard_kube.client import KubeClient, Selection
from runyard_kube.errors import Conflict, KubeError, NotFound
from runyard_kube.resources import PODS
from runyard_operator.seen import pod_of
from runyard_operator.world import utc_now
from runyard_runtime.runtime import Runtime, start_runtime
from runyard_runtime.serve import Server, serve
from runyard_runtime.settings import Settings
from runyard_store.database import Database, open_database

OURS = Selection(labels="runyard.dev/agent")
PROJECT = Path(__file__).parent / "project" / "langgraph.json"
_addresses = itertools.count(int(ipaddress.ip_address("127.20.0.1")) + os.getpid() % 2**15 * 256)


@dataclass
class Machine:
    """One started pod. `silent`: its server was taken away while its runs go on."""

    name: str
    runtime: Runtime
    server: Server
    db: Database

    async def vanish(self) -> None:
        """Nobody reaches the pod any more, but what it runs goes on: a node that lost its network."""
        await self.server.stop()

    async def stop(self) -> None:
        await self.runtime.drain(0)
        await self.runtime.stop()
        await self.server.stop()
        await self.db.close()


class Kubelet:
    """Starts every pod of a namespace, and stops those that are deleted. `machines` by pod name."""

    def __init__(self, kube: KubeClient, namespace: str, database_url: str) -> None:
        self.machines: dict[str, Machine] = {}
        self.started = 0
        self._kube, self._namespace, self.database_url = kube, namespace, database_url
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[str] = []

    async def start(self) -> None:
        self._spawn(self._follow(), "watch of pods")

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self._failures, self._failures
        for machine in self.machines.values():
            await machine.stop()

    async def fail(self, name: str, *, code: int = 137, reason: str = "OOMKilled") -> None:
        """The pod's container is dead as far as anybody can tell; what it ran goes on unreachably."""
        await self.machines[name].vanish()
        await self._ended(name, code, reason, "")

    async def _follow(self) -> None:
        """Lists and watches, again after the API server was away."""
        while True:
            with contextlib.suppress(KubeError):
                listing = await self._kube.list(PODS, self._namespace, selection=OURS)
                self._compare({raw["metadata"]["name"]: raw for raw in listing.items})
                watch = self._kube.watch(
                    PODS, self._namespace, resource_version=listing.resource_version, selection=OURS
                )
                async with aclosing(watch) as events:
                    async for event in events:
                        if event.type != "BOOKMARK":
                            self._see(event.object, deleted=event.type == "DELETED")
            await asyncio.sleep(0.1)

    def _compare(self, listed: dict[str, Manifest]) -> None:
        for name in self._known - listed.keys():
            self._see({"metadata": {"name": name}}, deleted=True)
        for raw in listed.values():
            self._see(raw)

    def _see(self, raw: Manifest, *, deleted: bool = False) -> None:
        name = raw["metadata"]["name"]
        if deleted:
            self._known.discard(name)
            if name in self.machines:
                self._spawn(self.machines.pop(name).stop(), f"stop of {name}")
        elif name not in self._known:
            self._known.add(name)
            self._spawn(self._run(raw), f"start of {name}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(f"{task.get_name()}: {error!r}")

    async def _run(self, pod: Manifest) -> None:
        self.started += 1
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        if container["image"].startswith("missing"):
            message = f'Back-off pulling image "{container["image"]}": ErrImagePull: {container["image"]}: not found'
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
            await self._report(name, {"phase": "Pending", **self._container(container["image"], waiting)})
        elif container["image"].startswith("broken"):
            said = orjson.dumps({"reason": "ImportFailed", "message": "ModuleNotFoundError: No module named 'nope'"})
            await self._ended(name, 1, "Error", said.decode())
        else:
            await self._boot(name, pod_of(pod).port, container)

    async def _boot(self, name: str, port: int, container: Manifest) -> None:
        env = {one["name"]: one.get("value", "") for one in container["env"]}
        settings = Settings(
            database_url=self.database_url,
            config=PROJECT,
            slots=int(env["RUNYARD_SLOTS"]),
            max_runs=int(env["RUNYARD_MAX_RUNS"]),
            token_sha256=env["RUNYARD_TOKEN_SHA256"],
            pod_name=name,
            drain_seconds=0,
            stop_grace_seconds=5,
            pool_size=4,
        )
        db = await open_database(settings.database_url, settings.pool_size)
        runtime = await start_runtime(settings, db)
        address = str(ipaddress.ip_address(next(_addresses)))
        server = await serve(runtime.app, port=port, host=address)
        self.machines[name] = Machine(name, runtime, server, db)
        running = {"running": {"startedAt": format_time(utc_now())}}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await self._report(name, status | self._container(container["image"], running))

    async def _ended(self, name: str, code: int, reason: str, message: str) -> None:
        state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
        await self._report(name, {"phase": "Failed", **self._container("any", state)})

    def _container(self, image: str, state: Manifest) -> Manifest:
        told = {"name": "runtime", "image": image, "imageID": "", "ready": "running" in state, "restartCount": 0}
        return {"containerStatuses": [told | {"state": state}]}

    async def _report(self, name: str, status: Manifest) -> None:
        try:
            await self._kube.patch_status(PODS, self._namespace, name, status)
        except (NotFound, Conflict):
            return
