"""What the pods of a template serve, kept in the database so that it is known while none is up. Called by `reconcile`.

A pod is asked when none of its template was lately: under the same tag an image may be another by then.
"""

import asyncio
from collections.abc import Iterable

import structlog

from runyard_api.agent import Agent
from runyard_api.crd import Manifest
from runyard_api.errors import RunyardError
from runyard_operator.links import PodLink
from runyard_operator.world import World

ASK_SECONDS = 10.0
"""How long the graphs of a pod may take to tell their schemas: their code runs for it."""

log = structlog.get_logger()


def speaking(links: Iterable[PodLink], hash8: str) -> PodLink | None:
    """A pod of the template that can be asked; None if there is none."""
    return next((link for link in links if link.connected and link.graphs and link.pod.hash8 == hash8), None)


async def discover(world: World, agent: Agent, link: PodLink) -> None:
    """Asks a pod for the schemas of its graphs and keeps them. A graph that doesn't tell has None, and is asked by
    whoever needs it. Raises Unavailable when the database doesn't answer."""
    told = await asyncio.gather(*(_schemas(link, graph) for graph in link.graphs))
    graphs = dict(zip(link.graphs, told, strict=True))
    name = agent.metadata.name
    await world.rows.keep_graphs(name, link.pod.hash8, graphs, world.now())
    log.info("graphs discovered", agent=name, pod=link.pod.name, graphs=" ".join(sorted(graphs)))


async def _schemas(link: PodLink, graph: str) -> Manifest | None:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return (await link.client.schemas(graph)).model_dump()
    except (RunyardError, TimeoutError) as error:
        log.warning("graph doesn't tell its schemas", pod=link.pod.name, graph=graph, why=type(error).__name__)
        return None
