"""What readers see in an Agent."""

import pytest
from tests.support.manifests import agent, edited

from runyard_api.agent import Agent, AgentSpec
from runyard_api.crd import Manifest


def _condition(kind: str, status: str) -> Manifest:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([], False),
        ([_condition("Progressing", "True")], False),
        ([_condition("Ready", "False")], False),
        ([_condition("Ready", "Unknown")], False),
        ([_condition("Progressing", "True"), _condition("Ready", "True")], True),
    ],
    ids=["unseen", "only progressing", "not ready", "unknown", "ready"],
)
def test_an_agent_is_ready_only_if_its_condition_says_so(conditions: list[Manifest], ready: bool) -> None:
    assert Agent.from_manifest(edited(agent(), "status.conditions", conditions)).is_ready is ready


def test_the_defaults_of_an_agent() -> None:
    spec = AgentSpec(image="x")
    assert (spec.slots, spec.replicas.min, spec.replicas.max, spec.pending_deadline_seconds) == (10, 1, 1, 120)
    assert (spec.replicas.idle_seconds, spec.max_runs_per_pod, spec.drain_seconds) == (300, 0, 60)
    defaults = spec.run_defaults
    assert (defaults.recursion_limit, defaults.ttl_seconds_after_finished, defaults.max_failures) == (25, 3600, 3)


def test_the_graphs_of_an_agent_are_those_found_in_its_pods_and_before_that_those_it_names() -> None:
    named = Agent.from_manifest(agent(graphs={"b": "./b.py:g", "a": "./a.py:g"}))
    assert named.graph_ids == ("a", "b")
    found = Agent.from_manifest(edited(agent(graphs={"b": "./b.py:g"}), "status.graphs", ["c"]))
    assert found.graph_ids == ("c",)
    assert Agent.from_manifest(agent()).graph_ids == ()


def test_a_spec_is_written_as_it_was_read() -> None:
    given: Manifest = {
        "image": "x",
        "graphs": {"agent": "./a.py:graph"},
        "podTemplate": {
            "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
            "envFrom": [{"secretRef": {"name": "s"}}],
        },
    }
    written = Agent.from_manifest(agent(**given)).spec.to_json()
    assert written["podTemplate"] == given["podTemplate"]
    assert written["graphs"] == given["graphs"]
