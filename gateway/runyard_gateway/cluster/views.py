"""What Run and Agent objects say, cut down to what the gateway asks of them. Pure; parsed once per change."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from runyard_api.agent import Agent
from runyard_api.crd import Manifest
from runyard_api.internal import RunError
from runyard_api.run import Run
from runyard_api.states import CancelAction, RunState
from runyard_gateway.ports import AgentView


@dataclass(frozen=True)
class PodAddress:
    """Where an agent pod listens (`ip:port`) and what its token is made from."""

    pod: str
    nonce: str
    endpoint: str


@dataclass(frozen=True)
class ClusterRun:
    """A Run object. `name` is its run id but for hand-written ones; `pod` is set while a pod holds the run;
    `cancel` is what was asked of it."""

    name: str
    run_id: str
    state: RunState
    attempt: int
    pod: PodAddress | None
    error: RunError | None
    cancel: CancelAction | None = None

    def lacks(self, cancel: CancelAction | None) -> bool:
        """Whether this cancel, the row's, is still to be asked of the unfinished object."""
        return cancel is not None and not self.state.finished and self.cancel is not cancel.escalated(self.cancel)


@dataclass(frozen=True)
class ClusterAgent:
    """An Agent object; `pods` are those that take runs, `leaving` those that still answer but take none."""

    view: AgentView
    pods: tuple[PodAddress, ...]
    leaving: tuple[PodAddress, ...] = ()


def cluster_run(manifest: Manifest) -> ClusterRun:
    """Reads a Run object. Raises Invalid when it isn't one."""
    run = Run.from_manifest(manifest)
    status = run.status
    pod = None
    if status.state is RunState.RUNNING and status.pod_name and status.pod_nonce and status.endpoint:
        pod = PodAddress(status.pod_name, status.pod_nonce, status.endpoint)
    error = RunError(error=status.error.error, message=status.error.message) if status.error else None
    return ClusterRun(run.metadata.name, run.run_id, status.state, status.attempt or 0, pod, error, run.cancel_action)


def cluster_agent(manifest: Manifest) -> ClusterAgent:
    """Reads an Agent object. Raises Invalid when it isn't one."""
    agent = Agent.from_manifest(manifest)
    condition = agent.ready
    why = "" if condition is None or agent.is_ready else f"{condition.reason}: {condition.message}"
    made = datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
    view = AgentView(agent.metadata.name, agent.graph_ids, agent.is_ready, made, why, agent.status.template_hash or "")
    answering = [
        (pod.draining, PodAddress(pod.name, pod.nonce, pod.endpoint))
        for pod in agent.status.pods
        if pod.ready and pod.endpoint
    ]
    return ClusterAgent(
        view,
        tuple(address for draining, address in answering if not draining),
        tuple(address for draining, address in answering if draining),
    )


def by_age(agents: Iterable[ClusterAgent]) -> list[AgentView]:
    """Oldest first; of those made in the same second the name decides, so that every gateway sees one order."""
    return sorted((agent.view for agent in agents), key=lambda view: (view.created_at, view.name))
