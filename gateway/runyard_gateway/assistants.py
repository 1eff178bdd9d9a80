"""System assistants: one for every graph that an agent serves, derived from the agents alone. Pure; used by the routes
that name an assistant and by the ones that list them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runyard_api.errors import Invalid, NotFound
from runyard_api.names import system_assistant_id
from runyard_api.wire import AssistantSearch
from runyard_api.wire_views import AssistantView
from runyard_gateway.ports import AgentView

NOT_FOUND = "Thread or assistant not found."
GRAPH_ID_LIMIT = 128


@dataclass(frozen=True)
class Assistant:
    """`name` is what clients call the graph: its id, or `agent/graph` when an older agent owns that id already."""

    name: str
    graph_id: str
    agent_name: str
    created_at: datetime

    @property
    def assistant_id(self) -> str:
        return system_assistant_id(self.name)

    def view(self) -> AssistantView:
        made = self.created_at.isoformat()
        return AssistantView(
            assistant_id=self.assistant_id, graph_id=self.name, name=self.name, description=None,
            config={}, context={}, metadata={"created_by": "system"}, version=1, created_at=made, updated_at=made,
        )  # fmt: skip


def assistants(agents: Iterable[AgentView]) -> list[Assistant]:
    """The system assistants of all agents; the agents come oldest first, and the first to serve a graph id owns it."""
    found: dict[str, Assistant] = {}
    for agent in agents:
        for graph in agent.graphs:
            name = f"{agent.name}/{graph}" if graph in found else graph
            found[name] = Assistant(name, graph, agent.name, agent.created_at)
    return list(found.values())


def resolve(agents: Sequence[AgentView], assistant_id: str) -> Assistant:
    """The assistant that a run body names by uuid, graph id or `agent/graph`.

    Raises NotFound for an unknown uuid and Invalid for an unknown graph, listing those there are.
    """
    known = assistants(agents)
    wanted = _uuid(assistant_id)
    for assistant in known:
        if assistant.assistant_id == wanted or assistant.name == assistant_id:
            return assistant
    if wanted is not None:
        raise NotFound(NOT_FOUND)
    return _explicit(agents, assistant_id) or _refuse(agents, known, assistant_id)


def by_id(agents: Sequence[AgentView], assistant_id: UUID) -> Assistant:
    """The assistant with this id. Raises NotFound."""
    for assistant in assistants(agents):
        if assistant.assistant_id == str(assistant_id):
            return assistant
    raise NotFound(f"Assistant {assistant_id} not found")


def search(agents: Sequence[AgentView], body: AssistantSearch) -> list[Assistant]:
    """All assistants that match the body's filters, in its order (newest first when it names none), not paged."""
    matches = [
        a for a in assistants(agents)
        if body.graph_id in (None, a.name)
        and (body.name or "").lower() in a.name.lower()
        and _contains({"created_by": "system"}, body.metadata or {})
    ]  # fmt: skip
    key = body.sort_by or "created_at"
    descending = (body.sort_order or ("desc" if body.sort_by is None else "asc")) == "desc"
    return sorted(matches, key=lambda a: str(dict(a.view())[key]), reverse=descending)


def _contains(metadata: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(metadata.get(key) == value for key, value in wanted.items())


def _explicit(agents: Sequence[AgentView], assistant_id: str) -> Assistant | None:
    """`agent/graph` of an agent whose graphs are the known ones, or not discovered yet: then its run waits for them."""
    agent_name, slash, graph = assistant_id.partition("/")
    for agent in agents:
        if (
            slash
            and graph
            and agent.name == agent_name
            and (not agent.graphs or graph in agent.graphs)
            and len(graph) <= GRAPH_ID_LIMIT
        ):
            return Assistant(assistant_id, graph, agent.name, agent.created_at)
    return None


def _refuse(agents: Sequence[AgentView], known: Sequence[Assistant], assistant_id: str) -> Assistant:
    names = ", ".join(sorted(a.name for a in known)) or "none"
    text = f"Graph '{assistant_id}' not found. Expected one of: {names}"
    unready = [f"{a.name} ({a.reason})" if a.reason else a.name for a in agents if not a.ready and not a.graphs]
    raise Invalid(text + (f". Agents whose graphs are not known yet: {', '.join(unready)}" if unready else ""))


def _uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None
