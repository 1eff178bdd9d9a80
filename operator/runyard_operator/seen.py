"""How objects from the API server become what the operator keeps: Run and Agent models, a small view of pods. Pure.

Called with every object of a watch, a list or an answer to our own writes; missing fields of a pod become empty,
because a pod in a shape that we don't know must not stop the reconcile of the others.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runyard_api.agent import Agent
from runyard_api.crd import Manifest, ObjectMeta
from runyard_api.names import ANNOTATION_DRAINING, ANNOTATION_NONCE, LABEL_AGENT, LABEL_TEMPLATE_HASH, RUNTIME_PORT
from runyard_api.run import Run

RUNTIME_CONTAINER = "runtime"
RUNTIME_PORT_NAME = "runtime"
ENDED_PODS = 1000
"""How many ended pods are remembered."""


@dataclass(frozen=True)
class ContainerView:
    """What the kubelet says about the runtime container; `exit_code` and what follows it once it ended."""

    running: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    exit_code: int | None = None
    exit_reason: str = ""
    termination_message: str = ""


@dataclass(frozen=True)
class PodView:
    """One agent pod. `unschedulable`: why no node takes it, None if one does or nobody has looked yet."""

    metadata: ObjectMeta
    owner_uid: str | None
    phase: str
    phase_reason: str
    phase_message: str
    unschedulable: str | None
    ip: str | None
    port: int
    container: ContainerView

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def agent(self) -> str:
        return self.metadata.labels.get(LABEL_AGENT, "")

    @property
    def hash8(self) -> str:
        return self.metadata.labels.get(LABEL_TEMPLATE_HASH, "")

    @property
    def nonce(self) -> str:
        return self.metadata.annotations.get(ANNOTATION_NONCE, "")

    @property
    def draining(self) -> bool:
        return ANNOTATION_DRAINING in self.metadata.annotations

    @property
    def draining_since(self) -> datetime | None:
        """Since when it is marked as draining; None: it isn't, or the mark doesn't say, because a person made it."""
        try:
            since = datetime.fromisoformat(self.metadata.annotations.get(ANNOTATION_DRAINING, ""))
        except ValueError:
            return None
        return since if since.tzinfo is not None else None

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def ended(self) -> bool:
        """Its containers will never run again."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def reachable(self) -> bool:
        """Its container runs and has an address, so a server may answer there."""
        return self.ip is not None and self.container.running and not self.ended

    @property
    def endpoint(self) -> str | None:
        """`ip:port`, as Run and Agent status publish it."""
        if self.ip is None:
            return None
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


def run_of(raw: Mapping[str, Any]) -> Run:
    """Reads a Run; the payload of an admitted one is in its row and isn't kept. Raises Invalid."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if "payload" in spec and status.get("sequence"):
        raw = {**raw, "spec": {key: value for key, value in spec.items() if key != "payload"}}
    return Run.from_manifest(raw)


def agent_of(raw: Mapping[str, Any]) -> Agent:
    """Reads an Agent. Raises Invalid."""
    return Agent.from_manifest(raw)


def pod_of(raw: Mapping[str, Any]) -> PodView:
    """Reads an agent pod; its port is the one named in its spec."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    owners = raw["metadata"].get("ownerReferences") or ()
    return PodView(
        metadata=ObjectMeta.model_validate(raw["metadata"]),
        owner_uid=next((owner["uid"] for owner in owners if owner.get("controller")), None),
        phase=status.get("phase") or "Pending",
        phase_reason=status.get("reason") or "",
        phase_message=status.get("message") or "",
        unschedulable=_unschedulable(status),
        ip=status.get("podIP"),
        port=_port(spec),
        container=_container(status),
    )


def _port(spec: Manifest) -> int:
    ports = [port for container in spec.get("containers") or () for port in container.get("ports") or ()]
    return next((int(p["containerPort"]) for p in ports if p.get("name") == RUNTIME_PORT_NAME), RUNTIME_PORT)


def _unschedulable(status: Manifest) -> str | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("message") or "no node takes the pod"
    return None


def _container(status: Manifest) -> ContainerView:
    containers = status.get("containerStatuses") or ()
    state = next((c.get("state") or {} for c in containers if c.get("name") == RUNTIME_CONTAINER), {})
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    return ContainerView(
        running="running" in state,
        waiting_reason=waiting.get("reason") or "",
        waiting_message=waiting.get("message") or "",
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason") or "",
        termination_message=ended.get("message") or "",
    )


class EndedPods:
    """How the last pods ended: their objects may be deleted before the runs they had are looked at."""

    def __init__(self) -> None:
        self._pods: OrderedDict[tuple[str, str, str], PodView] = OrderedDict()

    def note(self, pod: PodView) -> None:
        self._pods[(pod.namespace, pod.name, pod.nonce)] = pod
        while len(self._pods) > ENDED_PODS:
            self._pods.popitem(last=False)

    def get(self, namespace: str, name: str, nonce: str) -> PodView | None:
        """The pod as it ended; None: it didn't, as far as is known."""
        return self._pods.get((namespace, name, nonce))
