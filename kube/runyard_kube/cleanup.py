"""Takes down what a release has made at run time: its operator, agent pods and finalizers, in this order.

Run by the chart's pre-delete Job as `python -m runyard_kube.cleanup`. Before the rest of the release goes, because
agent pods that leave hand their runs over through the database, and because a namespace or CRD that goes with the
release would wait for finalizers that nobody could remove any more: in a namespace that ends no rights can be given.
After the operator, because it would make the pods and finalizers again.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from runyard_api.crd import Manifest
from runyard_api.names import AGENT_FINALIZER, LABEL_MANAGED_BY, MANAGED_BY
from runyard_kube.client import KubeClient, Listing, Selection
from runyard_kube.errors import Conflict, KubeError, NotFound
from runyard_kube.resources import AGENTS, DEPLOYMENTS, PODS, Resource

OURS = Selection(labels=f"{LABEL_MANAGED_BY}={MANAGED_BY}")
OPERATOR_SECONDS, AGENT_SECONDS = 60, 120
"""How long the operator and agent pods may take to leave; both have less grace time than that."""
POLL_SECONDS = 1.0

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Release:
    """Where things are: the operator's Deployment and the labels of its pods in one namespace, Agents in the other."""

    namespace: str
    operator: str
    operator_labels: str
    agents_namespace: str


class CleanupApi(Protocol):
    """What this module needs of KubeClient."""

    async def list(
        self, resource: Resource, namespace: str | None, *, selection: Selection, metadata_only: bool = False
    ) -> Listing: ...
    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest: ...
    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None: ...


async def take_down(client: CleanupApi, release: Release, *, sleep: Sleep = asyncio.sleep) -> None:
    """Does all steps; safe to run again. Raises TimeoutError when an operator stays, and the errors of the client."""
    with contextlib.suppress(NotFound):
        await client.patch(DEPLOYMENTS, release.namespace, release.operator, {"spec": {"replicas": 0}})
    operators = Selection(labels=release.operator_labels)
    if await _until_none(client, (release.namespace, operators), OPERATOR_SECONDS, sleep):
        raise TimeoutError(f"the operator's pods haven't ended within {OPERATOR_SECONDS} s")
    _say("the operator has ended")
    names = await remove_pods(client, release.agents_namespace, sleep=sleep)
    _say(f"agent pods removed: {' '.join(names) or 'none'}")
    released = await release_agents(client, release.agents_namespace)
    _say(f"agents released: {' '.join(released) or 'none'}")


async def remove_pods(client: CleanupApi, namespace: str, *, sleep: Sleep = asyncio.sleep) -> list[str]:
    """Deletes every pod that Runyard made there, waits until they are gone, and returns their names.

    Their grace time holds; what is left long after it, on a dead node, is removed from the API. Raises the errors of
    the client.
    """
    heads = await _pods(client, namespace, OURS)
    await _delete(client, namespace, heads, grace_seconds=None)
    if left := await _until_none(client, (namespace, OURS), AGENT_SECONDS, sleep):
        await _delete(client, namespace, left, grace_seconds=0)
    return [head["name"] for head in heads]


async def release_agents(client: CleanupApi, namespace: str) -> list[str]:
    """Takes our finalizer from every Agent, and returns the names of those that had it. Agents and Runs stay."""
    released: list[str] = []
    while held := await _held(client, namespace):
        for meta in held:
            others = [one for one in meta["finalizers"] if one != AGENT_FINALIZER]
            body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": others}}
            with contextlib.suppress(NotFound, Conflict):  # gone, or changed meanwhile: the next round sees it
                await client.patch(AGENTS, namespace, meta["name"], body)
                released.append(meta["name"])
    return released


async def _held(client: CleanupApi, namespace: str) -> list[Manifest]:
    try:
        listing = await client.list(AGENTS, namespace, selection=Selection(), metadata_only=True)
    except NotFound:  # the CRD is gone already
        return []
    heads = [agent["metadata"] for agent in listing.items]
    return [head for head in heads if AGENT_FINALIZER in head.get("finalizers", ())]


async def _until_none(client: CleanupApi, where: tuple[str, Selection], seconds: float, sleep: Sleep) -> list[Manifest]:
    """Waits until no such pod is there; returns those that are left after `seconds`."""
    for _ in range(int(seconds / POLL_SECONDS)):
        if not await _pods(client, *where):
            return []
        await sleep(POLL_SECONDS)
    return await _pods(client, *where)


async def _pods(client: CleanupApi, namespace: str, selection: Selection) -> list[Manifest]:
    listing = await client.list(PODS, namespace, selection=selection, metadata_only=True)
    return [pod["metadata"] for pod in listing.items]


async def _delete(client: CleanupApi, namespace: str, heads: list[Manifest], *, grace_seconds: int | None) -> None:
    for head in heads:
        with contextlib.suppress(NotFound, Conflict):  # gone meanwhile, or another pod has its name: not ours to delete
            await client.delete(PODS, namespace, head["name"], uid=head["uid"], grace_seconds=grace_seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends with 1 and one sentence when it can't be done."""
    parser = argparse.ArgumentParser(prog="runyard-cleanup", description=__doc__)
    for name in ("namespace", "operator", "operator-labels", "agents-namespace"):
        parser.add_argument(f"--{name}", required=True)
    release = Release(**vars(parser.parse_args(arguments)))
    try:
        asyncio.run(_run(release))
    except (KubeError, TimeoutError) as error:
        sys.exit(f"runyard-cleanup: {error}")


async def _run(release: Release) -> None:
    async with await KubeClient.open() as client:
        await take_down(client, release)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
