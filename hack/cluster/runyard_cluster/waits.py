"""Waiting for what a cluster is made of, with the component and its log named when it doesn't come. Called by `up`."""

import contextlib
import datetime
import socket

from runyard_cluster.api import Api
from runyard_cluster.errors import ClusterError, timed_out
from runyard_cluster.machines import MachineDir
from runyard_cluster.settings import DNS_SERVICE, KUBERNETES_SERVICE
from runyard_cluster.shell import poll

NODE_TIMEOUT = 60.0  # seconds
DNS_TIMEOUT = 60.0
ACCOUNT_TIMEOUT = 30.0
ROUTE_TIMEOUT = 45.0
NAMESPACES = ("default", "kube-system")


def ready_since(api: Api, name: str) -> float | None:
    """Return when a node last said that it is Ready (seconds since the epoch); None when it isn't."""
    conditions = api.get(f"/api/v1/nodes/{name}").get("status", {}).get("conditions", [])
    for condition in conditions:
        if condition["type"] == "Ready" and condition["status"] == "True":
            return datetime.datetime.fromisoformat(condition["lastHeartbeatTime"]).timestamp()
    return None


def wait_for_node(api: Api, node: MachineDir, *, since: float = 0) -> None:
    """Return when a node has said after `since` (seconds since the epoch) that it is Ready; raises ClusterError."""

    def is_ready() -> bool:
        with contextlib.suppress(ClusterError):
            return (ready_since(api, node.name) or 0) > since
        return False

    if not poll(is_ready, timeout=NODE_TIMEOUT):
        raise timed_out(f"{node.name} becoming Ready", "kubelet", node.log("kubelet"), NODE_TIMEOUT)


def wait_for_dns(api: Api, node: MachineDir) -> None:
    """Return when every replica of the cluster's DNS is available; raises ClusterError with the kubelet's log."""

    def available() -> bool:
        with contextlib.suppress(ClusterError):
            deployment = api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns")
            return bool(deployment.get("status", {}).get("availableReplicas", 0) >= deployment["spec"]["replicas"])
        return False

    if not poll(available, timeout=DNS_TIMEOUT):
        raise timed_out("DNS becoming available", "kubelet", node.log("kubelet"), DNS_TIMEOUT)


def wait_for_service_accounts(api: Api, control: MachineDir) -> None:
    """Return when pods can be made in the first namespaces; raises ClusterError."""
    component = "kube-controller-manager"
    paths = [f"/api/v1/namespaces/{namespace}/serviceaccounts/default" for namespace in NAMESPACES]
    if not poll(lambda: all(api.exists(path) for path in paths), timeout=ACCOUNT_TIMEOUT):
        raise timed_out("The default service accounts", component, control.log(component), ACCOUNT_TIMEOUT)


def wait_for_service_route(control: MachineDir) -> None:
    """Return when this process reaches the API server and DNS by their Services; raises ClusterError."""

    def reached() -> bool:
        return all(_connects(address, port) for address, port in ((KUBERNETES_SERVICE, 443), (DNS_SERVICE, 53)))

    if not poll(reached, timeout=ROUTE_TIMEOUT):
        raise timed_out(
            "Services becoming reachable from the host", "kube-proxy", control.log("kube-proxy"), ROUTE_TIMEOUT
        )


def _connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True
