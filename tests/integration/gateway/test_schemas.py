"""Schemas of graphs: those that pods told once need no pod."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from runyard_api.errors import Unavailable
from runyard_api.internal import GraphSchemas
from runyard_gateway.assistants import resolve
from runyard_gateway.ports import AgentEndpoint, AgentView, Runs
from runyard_gateway.schemas import schemas_of
from runyard_store.agent_graphs import keep_graphs
from runyard_store.database import Database

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KEPT: dict[str, Any] = GraphSchemas(graph_id="chat", input_schema={"type": "object"}).model_dump()


class Pod:
    async def schemas(self, graph_id: str) -> GraphSchemas:
        return GraphSchemas(graph_id=graph_id, input_schema={"title": "asked"})


class Agents:
    """Two agents with one graph of the same id; `pod` None: none is up."""

    def __init__(self, pod: Pod | None = None) -> None:
        self._pod = pod

    def agents(self) -> list[AgentView]:
        return [AgentView(name, ("chat",), True, NOW, template="aaaaaaaa") for name in ("first", "second")]

    async def endpoint(self, agent_name: str) -> AgentEndpoint:
        if self._pod is None:
            raise Unavailable(f"Agent {agent_name} has no pod up")
        return cast(AgentEndpoint, self._pod)


async def schemas(db: Database, name: str, pod: Pod | None = None) -> dict[str, Any]:
    runs = cast(Runs, Agents(pod))
    return await schemas_of(db, runs, resolve(runs.agents(), name))


async def test_schemas_that_are_kept_need_no_pod(db: Database) -> None:
    await keep_graphs(db, "first", "aaaaaaaa", {"chat": KEPT}, NOW)
    assert await schemas(db, "chat") == KEPT


async def test_schemas_of_a_graph_whose_id_another_agent_owns_are_its_own(db: Database) -> None:
    await keep_graphs(db, "first", "aaaaaaaa", {"chat": KEPT}, NOW)
    own = KEPT | {"input_schema": {"title": "own"}}
    await keep_graphs(db, "second", "aaaaaaaa", {"chat": own}, NOW)
    assert await schemas(db, "second/chat") == own | {"graph_id": "second/chat"}


@pytest.mark.parametrize("template", ["aaaaaaaa", "bbbbbbbb"])
async def test_a_pod_is_asked_for_what_was_never_told(db: Database, template: str) -> None:
    await keep_graphs(db, "first", template, {"chat": None}, NOW)
    assert (await schemas(db, "chat", Pod()))["input_schema"] == {"title": "asked"}
    with pytest.raises(Unavailable):
        await schemas(db, "chat")
