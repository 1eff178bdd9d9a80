"""Removes agent pods after a release is gone: nobody looks after them any more, and the next release makes new ones.

Run by the chart's post-delete Job as `python -m runyard_kube.cleanup --namespace <agents namespace>`.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Protocol

from runyard_api.names import LABEL_MANAGED_BY, MANAGED_BY
from runyard_kube.client import KubeClient, Listing, Selection
from runyard_kube.errors import Conflict, KubeError, NotFound
from runyard_kube.resources import PODS, Resource

OURS = Selection(labels=f"{LABEL_MANAGED_BY}={MANAGED_BY}")


class PodsApi(Protocol):
    """What this module needs of KubeClient."""

    async def list(
        self, resource: Resource, namespace: str | None, *, selection: Selection, metadata_only: bool = False
    ) -> Listing: ...
    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None: ...


async def remove_pods(client: PodsApi, namespace: str) -> list[str]:
    """Asks for the deletion of every pod that Runyard made there, and returns their names; their grace time holds.

    Agents, Runs and what others made stay. Raises the errors of the client.
    """
    listing = await client.list(PODS, namespace, selection=OURS, metadata_only=True)
    heads = [pod["metadata"] for pod in listing.items]
    for head in heads:
        with contextlib.suppress(NotFound, Conflict):  # gone meanwhile, or another pod has its name: not ours to delete
            await client.delete(PODS, namespace, head["name"], uid=head["uid"])
    return [head["name"] for head in heads]


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends with 1 and one sentence when the API server refuses or doesn't answer."""
    parser = argparse.ArgumentParser(prog="runyard-cleanup", description=__doc__)
    parser.add_argument("--namespace", required=True)
    namespace = parser.parse_args(arguments).namespace
    try:
        names = asyncio.run(_run(namespace))
    except KubeError as error:
        sys.exit(f"runyard-cleanup: {error}")
    print(f"pods deleted in {namespace}: {' '.join(names) or 'none'}", flush=True)


async def _run(namespace: str) -> list[str]:
    async with await KubeClient.open() as client:
        return await remove_pods(client, namespace)


if __name__ == "__main__":
    main()
