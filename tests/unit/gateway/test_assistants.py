"""System assistants from agents: ids, who owns a graph id, look-ups and their refusals."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from runyard_api.errors import Invalid, NotFound
from runyard_api.names import system_assistant_id
from runyard_api.wire import AssistantSearch
from runyard_gateway.assistants import assistants, by_id, resolve, search
from runyard_gateway.ports import AgentView


def agent(name: str, *graphs: str, day: int = 1, ready: bool = True, reason: str = "") -> AgentView:
    return AgentView(name, graphs, ready, datetime(2026, 1, day, tzinfo=UTC), reason)


TWO = [agent("old", "chat", "plan", day=1), agent("new", "chat", "draw", day=2)]


def test_the_older_agent_owns_a_graph_id_and_the_younger_ones_is_qualified() -> None:
    assert [(a.name, a.agent_name, a.graph_id) for a in assistants(TWO)] == [
        ("chat", "old", "chat"),
        ("plan", "old", "plan"),
        ("new/chat", "new", "chat"),
        ("draw", "new", "draw"),
    ]


FOUND = {
    "by graph id": ("chat", "old"),
    "by its uuid": (system_assistant_id("chat"), "old"),
    "by uuid in capitals": (system_assistant_id("draw").upper(), "new"),
    "by agent and graph": ("new/chat", "new"),
    "by agent and graph where it isn't needed": ("old/plan", "old"),
}


@pytest.mark.parametrize(("given", "owner"), FOUND.values(), ids=FOUND.keys())
def test_resolving_what_a_run_names(given: str, owner: str) -> None:
    assert resolve(TWO, given).agent_name == owner


def test_an_unknown_graph_is_refused_with_those_there_are() -> None:
    with pytest.raises(Invalid) as refused:
        resolve(TWO, "nope")
    assert refused.value.detail == "Graph 'nope' not found. Expected one of: chat, draw, new/chat, plan"


def test_an_unknown_graph_names_agents_that_may_still_bring_it() -> None:
    with pytest.raises(Invalid) as refused:
        resolve([agent("late", ready=False, reason="ImagePullFailed: no such image")], "nope")
    assert "Expected one of: none" in refused.value.detail
    assert "late (ImagePullFailed: no such image)" in refused.value.detail


def test_an_unknown_uuid_is_not_found() -> None:
    with pytest.raises(NotFound) as refused:
        resolve(TWO, str(uuid4()))
    assert refused.value.detail == "Thread or assistant not found."


def test_a_graph_of_an_agent_that_has_shown_none_yet_may_be_named_in_full() -> None:
    late = [agent("late", ready=False)]
    assert resolve(late, "late/chat").graph_id == "chat"
    for name in ("late/", "late/" + "x" * 129, "other/chat", "chat"):
        with pytest.raises(Invalid):
            resolve(late, name)


def test_by_id() -> None:
    assert by_id(TWO, UUID(system_assistant_id("plan"))).name == "plan"
    with pytest.raises(NotFound):
        by_id(TWO, uuid4())


SEARCHES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "everything, newest first": ({}, ["new/chat", "draw", "chat", "plan"]),
    "one graph": ({"graph_id": "chat"}, ["chat"]),
    "part of a name": ({"name": "CHA"}, ["new/chat", "chat"]),
    "the system's": ({"metadata": {"created_by": "system"}}, ["new/chat", "draw", "chat", "plan"]),
    "nobody's": ({"metadata": {"created_by": "me"}}, []),
    "by name": ({"sort_by": "name"}, ["chat", "draw", "new/chat", "plan"]),
    "by name backwards": ({"sort_by": "name", "sort_order": "desc"}, ["plan", "new/chat", "draw", "chat"]),
}


@pytest.mark.parametrize(("body", "want"), SEARCHES.values(), ids=SEARCHES.keys())
def test_search(body: dict[str, Any], want: list[str]) -> None:
    assert [a.name for a in search(TWO, AssistantSearch.model_validate(body))] == want


def test_the_view() -> None:
    assert assistants(TWO)[0].view() == {
        "assistant_id": system_assistant_id("chat"),
        "graph_id": "chat",
        "name": "chat",
        "description": None,
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "version": 1,
        "created_at": "2026-01-01T00:00:00+00:00",
        "updated_at": "2026-01-01T00:00:00+00:00",
    }
