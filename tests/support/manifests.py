"""Small valid objects to start a test from, and edits of them."""

import copy
from typing import Any
from uuid import uuid4

from runyard_api.crd import Manifest
from runyard_api.names import API_VERSION
from runyard_api.run import run_object
from runyard_api.states import Strategy

REMOVED: Any = object()
"""As a value for `edited`: take the field away."""


def agent(name: str = "hello", **spec: Any) -> Manifest:
    """An Agent with an image and nothing else but what `spec` adds (in the API's spelling)."""
    return _object("Agent", name, {"image": "docker.io/example/hello:1", **spec})


def hand_written_run(name: str = "by-hand", **spec: Any) -> Manifest:
    """A Run as a person would write it."""
    return _object("Run", name, {"agentName": "hello", **spec})


def gateway_run(
    namespace: str, *, thread_id: str | None = None, sequence: int = 1, agent_name: str = "hello"
) -> Manifest:
    """A Run as the gateway makes it, under a new run id."""
    return run_object(
        run_id=str(uuid4()),
        namespace=namespace,
        agent_name=agent_name,
        graph_id="agent",
        assistant_id=str(uuid4()),
        thread_id=thread_id or str(uuid4()),
        user_id="default",
        sequence=sequence,
        strategy=Strategy.ENQUEUE,
        on_disconnect="continue",
        durability="async",
        stream_mode=["values", "messages-tuple"],
    )


def edited(manifest: Manifest, path: str, value: Any) -> Manifest:
    """A copy with the field at a dotted path set, or taken away if `value` is REMOVED; missing parents are made."""
    made = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    node = made
    for part in parents:
        node = node.setdefault(part, {})
    if value is REMOVED:
        node.pop(last, None)
    else:
        node[last] = value
    return made


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
