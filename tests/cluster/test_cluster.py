"""The cluster itself: what the project's other tests and benches take for granted must be shown to work here.

The order matters only for speed: nodes are killed last. Needs root and Linux; bounded to about three minutes.
"""

import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(150, func_only=True)]  # the fixture may build

Tool = Callable[..., subprocess.CompletedProcess[str]]
NOT_ROOT = {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def wait_until(check: Callable[[], object], what: str, timeout: float) -> None:
    """Return when `check` is true; fails the test after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout:.0f} s: {what}")
        time.sleep(0.25)


def fetch(url: str) -> str:
    """Return what the host reads from a URL of the cluster, without any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as response:
        return str(response.read().decode().strip())


def test_status_says_that_everything_is_up(cluster: Any, tool: Tool) -> None:
    text = tool("status").stdout
    assert "policy      on" in text
    assert "node2 Ready, 172.30.0.11, pods 10.244.2.0/24" in text
    assert "kubernetes v1." in text


def test_up_again_keeps_the_cluster_and_refuses_another_size(cluster: Any, tool: Tool) -> None:
    started = time.monotonic()
    assert "is up already" in tool("up", "--nodes", "2").stderr
    assert time.monotonic() - started < 5
    refused = tool("up", "--nodes", "1", check=False)
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_pods_reach_services_across_nodes_by_name(cluster: Any, namespace: str) -> None:
    server = cluster.pod("server", "serve", node="node1")
    cluster.apply(namespace, server, cluster.service("server"), cluster.pod("client", "sleep", node="node2"))
    cluster.wait_ready(namespace, "server", "client")
    address = cluster.probe(namespace, "client", "resolve", f"server.{namespace}.svc.cluster.local")
    assert address.startswith("10.96.")
    wait_until(lambda: cluster.probe(namespace, "client", "fetch", "http://server") == "server", "the Service", 10)
    assert cluster.probe(namespace, "client", "fetch", "https://10.96.0.1") is None  # reached, but not trusted


def test_the_host_reaches_pods_and_services(cluster: Any, namespace: str) -> None:
    cluster.apply(namespace, cluster.pod("server", "serve", node="node2"), cluster.service("server"))
    cluster.wait_ready(namespace, "server")
    pod_address = cluster.kubectl("-n", namespace, "get", "pod", "server", "-o", "jsonpath={.status.podIP}")
    assert pod_address.startswith("10.244.2.")
    assert fetch(f"http://{pod_address}:8080") == "server"
    service_address = cluster.kubectl("-n", namespace, "get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
    wait_until(lambda: fetch(f"http://{service_address}") == "server", "the Service", 10)


def test_the_api_server_reaches_pods(cluster: Any, namespace: str) -> None:
    cluster.apply(namespace, cluster.pod("server", "serve"), cluster.service("server"))
    cluster.wait_ready(namespace, "server")
    assert (
        cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/server:8080/proxy/").strip() == "server"
    )
    assert cluster.kubectl("-n", namespace, "exec", "server", "--", "/probe", "fetch", "http://localhost:8080")


def test_a_pod_that_is_not_root_writes_to_a_volume(cluster: Any, namespace: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounted = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    writer = cluster.pod("writer", "sleep", container=mounted, volumes=volumes, securityContext=NOT_ROOT)
    cluster.apply(namespace, claim, writer)
    cluster.wait_ready(namespace, "writer")
    assert cluster.probe(namespace, "writer", "write", "/data/file", "kept") is not None
    cluster.kubectl("-n", namespace, "delete", "pod", "writer", "--wait=true")
    cluster.apply(namespace, cluster.pod("reader", "sleep", container=mounted, volumes=volumes))
    cluster.wait_ready(namespace, "reader")
    assert cluster.probe(namespace, "reader", "read", "/data/file") == "kept"


def test_a_policy_closes_what_was_open_and_switching_off_opens_it(cluster: Any, namespace: str, tool: Tool) -> None:
    pods = [cluster.pod("server", "serve", node="node1"), cluster.pod("near", "sleep", node="node1")]
    cluster.apply(namespace, *pods, cluster.pod("far", "sleep", node="node2"), cluster.service("server"))
    cluster.wait_ready(namespace, "server", "near", "far")

    def reaching() -> set[str]:
        return {name for name in ("near", "far") if cluster.probe(namespace, name, "fetch", "http://server")}

    wait_until(lambda: reaching() == {"near", "far"}, "both clients reach the server", 15)
    allowed = {"from": [{"podSelector": {"matchLabels": {"app": "far"}}}]}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "only-far"},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": [allowed]},
    }
    cluster.apply(namespace, policy)
    wait_until(lambda: reaching() == {"far"}, "only the allowed client reaches the server", 15)
    tool("policy", "off")
    wait_until(lambda: reaching() == {"near", "far"}, "without enforcement both reach it", 15)
    tool("policy", "on")
    wait_until(lambda: reaching() == {"far"}, "enforcement closes it again", 15)


def test_two_api_servers_run_at_once_beside_the_cluster(tmp_path: Path, tool: Tool) -> None:
    folder = Path(tool("build", timeout=1500).stdout.strip())
    configs: dict[str, str] = {}
    for name in ("one", "two"):
        configs[name] = tool("apiserver", "up", "--dir", tmp_path / name).stdout.strip()
        assert configs[name] == str(tmp_path / name / "kubeconfig")

    def kubectl(name: str, *arguments: str) -> str:
        command = [str(folder / "kubectl"), "--kubeconfig", configs[name], *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return str(done.stdout)

    try:
        kubectl("one", "create", "namespace", "mine")
        assert "namespace/mine" in kubectl("one", "get", "namespaces", "-o", "name")
        assert "namespace/mine" not in kubectl("two", "get", "namespaces", "-o", "name")
    finally:
        for name in configs:
            tool("apiserver", "down", "--dir", tmp_path / name)
    assert not any((tmp_path / "one").iterdir())


def test_a_killed_node_comes_back_with_its_pods(cluster: Any, namespace: str, tool: Tool) -> None:
    client = cluster.pod("client", "sleep", node="node2")
    cluster.apply(namespace, cluster.pod("server", "serve", node="node1"), cluster.service("server"), client)
    cluster.wait_ready(namespace, "server", "client")

    def state(node: str) -> str:
        query = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return str(cluster.kubectl("get", "node", node, "-o", query))

    try:
        tool("kill-node", "node1")
        assert tool("status", check=False).returncode == 1
        wait_until(lambda: state("node1") == "Unknown", "node1 is NotReady", 40)
        assert state("node2") == "True"
        name = "kubernetes.default.svc.cluster.local"
        wait_until(lambda: cluster.probe(namespace, "client", "resolve", name), "DNS survives node1", 20)
        socket.create_connection(("10.96.0.1", 443), timeout=5).close()  # so does the host's way to Services
    finally:
        tool("start-node", "node1")
    assert state("node1") == "True"
    assert cluster.kubectl("get", "node", "node1", "-o", "jsonpath={.spec.podCIDR}") == "10.244.1.0/24"
    service_address = cluster.kubectl("-n", namespace, "get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")

    def answers() -> bool:
        try:
            return fetch(f"http://{service_address}") == "server"
        except OSError:
            return False

    wait_until(answers, "the pod on node1 answers again", 30)
    wait_until(lambda: tool("status", check=False).returncode == 0, "status says that all is up", 10)
