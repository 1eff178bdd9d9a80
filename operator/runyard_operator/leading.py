"""What an operator may do only while it leads: a Cluster that refuses to write otherwise. Made by `app` for each term.

A process that was stopped for a while (a debugger, a frozen node) goes on in the middle of a reconcile; by then another
operator may lead. So each write asks first whether the lease is certainly ours. Commands to pods carry the number of
the term instead, and pods refuse older ones (`runyard_clients.runtime`); rows have fences of their own.
"""

from dataclasses import dataclass

from runyard_api.crd import Manifest
from runyard_kube.client import EVERYTHING, Listing, Selection
from runyard_kube.errors import KubeError
from runyard_kube.lease import Leadership
from runyard_kube.resources import Resource
from runyard_operator.ports import Cluster


class NotLeading(KubeError):
    """The lease isn't certainly ours any more, so nothing may be written."""


@dataclass(frozen=True)
class LeadersCluster:
    """A Cluster whose writes raise NotLeading as soon as another operator may be leading."""

    cluster: Cluster
    leadership: Leadership

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        self._check()
        return await self.cluster.create(resource, namespace, body)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        return await self.cluster.get(resource, namespace, name)

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        selection: Selection = EVERYTHING,
        metadata_only: bool = False,
    ) -> Listing:
        return await self.cluster.list(resource, namespace, selection=selection, metadata_only=metadata_only)

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest:
        self._check()
        return await self.cluster.patch(resource, namespace, name, body)

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Manifest, *, resource_version: str | None = None
    ) -> Manifest:
        self._check()
        return await self.cluster.patch_status(resource, namespace, name, status, resource_version=resource_version)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        self._check()
        await self.cluster.delete(resource, namespace, name, uid=uid, grace_seconds=grace_seconds)

    def _check(self) -> None:
        if not self.leadership.certain:
            raise NotLeading("this operator doesn't lead any more")
