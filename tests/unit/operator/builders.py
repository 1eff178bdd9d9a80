"""Small objects to start a test from."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.manifests import agent as agent_manifest

from runyard_api.agent import Agent
from runyard_api.crd import Manifest, format_time
from runyard_api.internal import RunHeld
from runyard_api.names import ANNOTATION_NONCE, API_VERSION, LABEL_AGENT, LABEL_TEMPLATE_HASH
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_operator.seen import ContainerView, PodView, pod_of

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
NAMESPACE = "agents"
THREAD = "11111111-1111-4111-8111-111111111111"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def run(name: str = "r1", sequence: int | None = 1, *, created: datetime = NOW, version: int = 1, **parts: Any) -> Run:
    """A gateway-made Run, or a hand-written one without a sequence; `spec` and `status` as the API spells them."""
    spec: Manifest = {"agentName": "hello", "graphId": "echo", "threadId": THREAD} | parts.get("spec", {})
    if sequence is not None:
        spec["sequence"] = sequence
    return Run.from_manifest(
        {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": metadata(name, created=created, version=version),
            "spec": {key: value for key, value in spec.items() if value is not None},
            "status": {"state": "pending"} | parts.get("status", {}),
        }
    )


def agent(name: str = "hello", *, created: datetime = NOW, status: Manifest | None = None, **spec: Any) -> Agent:
    made = agent_manifest(name, **spec)
    made["metadata"] = metadata(name, created=created) | {"generation": 1}
    return Agent.from_manifest(made | {"status": status or {}})


def metadata(name: str, *, created: datetime = NOW, version: int = 1) -> Manifest:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": format_time(created),
    }


def pod_manifest(name: str = "hello-0", *, agent_name: str = "hello", hash8: str = "aaaaaaaa") -> Manifest:
    """A running agent pod as the API server has it."""
    return {
        "metadata": metadata(name)
        | {
            "labels": {LABEL_AGENT: agent_name, LABEL_TEMPLATE_HASH: hash8},
            "annotations": {ANNOTATION_NONCE: f"nonce-{name}"},
            "ownerReferences": [{"uid": f"uid-{agent_name}", "controller": True}],
        },
        "spec": {"containers": [{"name": "runtime", "ports": [{"name": "runtime", "containerPort": 8123}]}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [{"name": "runtime", "state": {"running": {}}}],
        },
    }


def pod(name: str = "hello-0", *, hash8: str = "aaaaaaaa", deleting: bool = False, **changes: Any) -> PodView:
    """A running pod; `container` and other fields of PodView may be changed."""
    view = pod_of(pod_manifest(name, hash8=hash8))
    if deleting:
        view = replace(view, metadata=view.metadata.model_copy(update={"deletion_timestamp": NOW}))
    return replace(view, **changes)


def ended_pod(
    name: str = "hello-0", *, hash8: str = "aaaaaaaa", code: int = 1, reason: str = "Error", said: str = ""
) -> PodView:
    container = ContainerView(exit_code=code, exit_reason=reason, termination_message=said)
    return pod(name, hash8=hash8, phase="Failed", container=container)


def held(run_id: str = "r1", state: RunState = RunState.RUNNING, *, attempt: int = 1, **changes: Any) -> RunHeld:
    return RunHeld(run_id=run_id, thread_id=THREAD, attempt=attempt, state=state, **changes)
