"""Reading many streams at once, and what must be true of each: ids once and rising, nothing lost. Used by scenarios."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.e2e.servers import AGENTS, App, Cluster


@dataclass
class Reading:
    """What one stream has given so far."""

    thread: str
    run: str = ""
    parts: list[Any] = field(default_factory=list)

    async def follow(self, stream: AsyncIterator[Any]) -> None:
        """Reads to the end; the SDK reconnects on its own."""
        async for part in stream:
            self.parts.append(part)
            if part.event == "metadata":
                self.run = part.data["run_id"]

    def data(self, event: str) -> list[Any]:
        """The data of all events of one name, in order."""
        return [part.data for part in self.parts if part.event == event]

    @property
    def attempts(self) -> list[int]:
        """The attempts that the stream tells of, in order."""
        return [data["attempt"] for data in self.data("metadata")]

    def assert_whole(self) -> None:
        """Every event has an id, each id came once, ids rise, and no error ended the stream."""
        assert self.data("error") == []
        ids = [part.id for part in self.parts if part.event != "end"]
        assert all(ids), f"events without an id in {self.run}"
        order = [tuple(map(int, found.split("-"))) for found in ids]
        assert order == sorted(set(order)), f"ids of {self.run} repeat or fall"


def count_reconnects(app: App) -> list[str]:
    """The paths that the SDK asks for again with Last-Event-ID; grows while the app is used."""
    paths: list[str] = []

    async def note(request: httpx.Request) -> None:
        if request.method == "GET" and "last-event-id" in request.headers:
            paths.append(request.url.path)

    app.client.http.client.event_hooks = {"request": [note]}
    return paths


async def ended_objects(cluster: Cluster, names: set[str]) -> dict[str, dict[str, Any]]:
    """The Run objects of those names, once all of them have ended: an object follows its row within a moment."""
    for _ in range(40):
        text = await asyncio.to_thread(cluster.kubectl, "get", "runs", "-n", AGENTS, "-o", "json")
        found = {o["metadata"]["name"]: o for o in json.loads(text)["items"] if o["metadata"]["name"] in names}
        if all("completionTime" in o.get("status", {}) for o in found.values()) and len(found) == len(names):
            return found
        await asyncio.sleep(0.5)
    raise AssertionError(f"{len(names)} runs have not all ended: {[o.get('status') for o in found.values()]}")
