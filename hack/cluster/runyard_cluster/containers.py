"""Killing a container's process from outside, as a crash does it: from inside, pid 1 can't be killed.

Called by `cli` and `kind`; calls `api` and `machines`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runyard_cluster import machines
from runyard_cluster.api import Api
from runyard_cluster.errors import ClusterError
from runyard_cluster.settings import API_SERVER, Settings
from runyard_cluster.shell import run

KILL = ("--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL")
"""What `ctr` is told; the container's id follows."""


@dataclass(frozen=True)
class Target:
    """A running container."""

    node: str
    id: str


def target(pod: dict[str, Any], container: str | None) -> Target:
    """Return a container of a pod as the API server gives it, the first when none is named; raises ClusterError."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    statuses = {found["name"]: found for found in pod.get("status", {}).get("containerStatuses", [])}
    wanted = container or next(iter(statuses), "")
    if wanted not in statuses:
        raise ClusterError(f"Pod {name} has no container {wanted}; it has {', '.join(statuses) or 'none yet'}.")
    if "running" not in statuses[wanted].get("state", {}):
        raise ClusterError(f"Container {wanted} of pod {name} doesn't run.")
    return Target(pod["spec"]["nodeName"], statuses[wanted]["containerID"].removeprefix("containerd://"))


def kill_container(settings: Settings, namespace: str, pod: str, container: str | None) -> None:
    """Kill a container of the native cluster with SIGKILL; raises ClusterError when there is none."""
    bin_folder = Path(machines.read_marker(settings).bin)
    found = Api(API_SERVER, settings.pki).get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    victim = target(found, container)
    socket = machines.find_node(settings, victim.node).containerd_socket()
    run([bin_folder / "ctr", "--address", socket, *KILL, victim.id], timeout=20)
