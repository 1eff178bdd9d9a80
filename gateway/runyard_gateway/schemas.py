"""The JSON schemas of an assistant's graph: as the agent's pods told them once, otherwise asked of a pod. Used by
routes/assistants.py; calls the store, Runs.endpoint and the pod."""

from typing import Any

from runyard_gateway.assistants import Assistant
from runyard_gateway.ports import Runs
from runyard_store.agent_graphs import read_graphs
from runyard_store.database import Database


async def schemas_of(db: Database, runs: Runs, assistant: Assistant) -> dict[str, Any]:
    """Schemas by their names, with `graph_id` as clients call the graph. Raises NotFound, Unavailable."""
    told = await _kept(db, runs, assistant)
    if told is None:
        endpoint = await runs.endpoint(assistant.agent_name)
        told = (await endpoint.schemas(assistant.graph_id)).model_dump()
    return {**told, "graph_id": assistant.name}


async def _kept(db: Database, runs: Runs, assistant: Assistant) -> dict[str, Any] | None:
    template = next((a.template for a in runs.agents() if a.name == assistant.agent_name), "")
    graphs = await read_graphs(db, assistant.agent_name, template) if template else None
    kept: dict[str, Any] | None = (graphs or {}).get(assistant.graph_id)
    return kept
