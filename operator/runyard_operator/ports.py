"""What the reconciles need of the outside, as protocols, so that tests can stand in for it; and the real ones.

`runyard_kube.client.KubeClient` is a Cluster as it is; `StoreRows` is the database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from runyard_api.crd import Manifest
from runyard_api.errors import NotFound
from runyard_api.states import RunState
from runyard_kube.client import EVERYTHING, Listing, Selection
from runyard_kube.resources import Resource
from runyard_store import agent_graphs
from runyard_store import runs as run_rows
from runyard_store.database import Database
from runyard_store.runs import NewRun, ObjectOfRun, RunRow


class Cluster(Protocol):
    """The verbs of the Kubernetes API that the operator uses; each raises the errors of runyard_kube.errors."""

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest: ...
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...
    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        selection: Selection = EVERYTHING,
        metadata_only: bool = False,
    ) -> Listing: ...
    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest: ...
    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Manifest, *, resource_version: str | None = None
    ) -> Manifest: ...
    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None: ...


class Rows(Protocol):
    """Rows of runs, and what Agents serve; each call raises Unavailable when the database doesn't answer."""

    async def create(self, new: NewRun, now: datetime) -> RunRow:
        """Raises ThreadBusy, NotFound, AlreadyExists, Invalid."""

    async def get(self, run_id: str) -> RunRow | None:
        """The row, or None."""

    async def finish_unheld(
        self, run_id: str, state: RunState, error: dict[str, str] | None, now: datetime
    ) -> RunRow | None:
        """The row as it ended, or None if there is none."""

    async def delete(self, run_id: str, now: datetime) -> None: ...

    async def with_object(self, made_before: datetime) -> list[ObjectOfRun]:
        """Unfinished runs whose object was made before then."""

    async def keep_graphs(
        self, agent_name: str, template_hash: str, graphs: Mapping[str, Any], now: datetime
    ) -> None: ...

    async def forget_graphs(self, agent_name: str) -> None: ...


@dataclass(frozen=True)
class StoreRows:
    """Rows in the database."""

    db: Database

    async def create(self, new: NewRun, now: datetime) -> RunRow:
        return await run_rows.create_run(self.db, new, now)

    async def get(self, run_id: str) -> RunRow | None:
        try:
            return await run_rows.get_run(self.db, run_id)
        except NotFound:
            return None

    async def finish_unheld(
        self, run_id: str, state: RunState, error: dict[str, str] | None, now: datetime
    ) -> RunRow | None:
        try:
            return await run_rows.finish_unheld(self.db, run_id, state, error, now)
        except NotFound:
            return None

    async def delete(self, run_id: str, now: datetime) -> None:
        await run_rows.delete_run(self.db, run_id, now)

    async def with_object(self, made_before: datetime) -> list[ObjectOfRun]:
        return await run_rows.runs_with_object(self.db, made_before)

    async def keep_graphs(self, agent_name: str, template_hash: str, graphs: Mapping[str, Any], now: datetime) -> None:
        await agent_graphs.keep_graphs(self.db, agent_name, template_hash, graphs, now)

    async def forget_graphs(self, agent_name: str) -> None:
        await agent_graphs.forget_graphs(self.db, agent_name)
