"""Who may reach whom: the table of docs/security.md, tried cell by cell on the cluster, first without enforcement."""

import contextlib
import json
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.servers import AGENTS, RELEASE, Cluster, run
from tests.support.reach import reach_table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

TABLE = reach_table()
IMAGE = "docker.io/runyard/runyard-runtime:0.1.0"
INTERNET = ("203.0.113.10", 8443)
"""A public address (of a range kept for documentation) that this machine takes on for the test."""
CONNECT = "(timeout 2 bash -c 'exec 3<>/dev/tcp/{0}/{1}' 2>/dev/null && echo {0}:{1}) &"
SETTLE_SECONDS = 30.0

Addresses = dict[str, set[str]]


@dataclass(frozen=True)
class Source:
    """A pod to connect from: where `kubectl exec` finds it, and its address."""

    namespace: str
    pod: str
    address: str


def probe(name: str, namespace: str, component: str | None = None) -> dict[str, Any]:
    """A pod to connect from, with the labels of one of the chart's parts; port 8080 answers."""
    labels = {"app.kubernetes.io/name": "runyard", "app.kubernetes.io/instance": RELEASE}
    container = {
        "name": "probe",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "http.server", "8080"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, "app.kubernetes.io/component": component} if component else {},
        },
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }


PROBES = {
    "keys Job": probe("probe-keys", RELEASE, "keys"),
    "migration Job": probe("probe-migration", RELEASE, "migration"),
    "cleanup Job": probe("probe-cleanup", RELEASE, "cleanup"),
    "others in the agents namespace": probe("probe", AGENTS),
    "the sandboxes namespace": probe("probe", f"{RELEASE}-sandboxes"),
    "other pods": probe("probe", "default"),
}


@pytest.fixture(scope="module")
def internet() -> Iterator[None]:
    """Something that answers at a public address, behind the nodes' way out."""
    run(["ip", "address", "add", f"{INTERNET[0]}/32", "dev", "lo"])
    try:
        with socketserver.TCPServer(INTERNET, socketserver.BaseRequestHandler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield
            server.shutdown()
    finally:
        run(["ip", "address", "del", f"{INTERNET[0]}/32", "dev", "lo"])


@pytest.fixture(scope="module")
def probes(cluster: Cluster) -> Iterator[None]:
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(PROBES.values())})
    cluster.kubectl("apply", "-f", "-", stdin=manifests)
    try:
        for found in PROBES.values():
            head = found["metadata"]
            cluster.kubectl(
                "wait", "pod", head["name"], "-n", head["namespace"], "--for=condition=Ready", "--timeout=30s"
            )
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", "--wait=false", stdin=manifests)


def running(cluster: Cluster, namespace: str, selector: str) -> list[Source]:
    listing = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json"))
    return [
        Source(namespace, pod["metadata"]["name"], pod["status"]["podIP"])
        for pod in listing["items"]
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


@pytest.fixture(scope="module")
def sources(cluster: Cluster, probes: None) -> dict[str, list[Source]]:
    """Row of the table -> its pods; the first one connects, the last one is connected to."""

    def part(component: str) -> list[Source]:
        return running(
            cluster, RELEASE, f"app.kubernetes.io/component={component},app.kubernetes.io/instance={RELEASE}"
        )

    found = {name: part(name) for name in ("gateway", "operator")}
    found["database"] = part("postgres")
    found["agent pods"] = running(cluster, AGENTS, "runyard.dev/agent")
    for row, manifest in PROBES.items():
        head = manifest["metadata"]
        answer = cluster.get("pod", head["name"], head["namespace"])
        found[row] = [Source(head["namespace"], head["name"], answer["status"]["podIP"])]
    return found


@pytest.fixture(scope="module")
def targets(cluster: Cluster, sources: dict[str, list[Source]], internet: None) -> Addresses:
    """Column of the table -> the addresses that stand for it."""
    ports = {"gateway": 8000, "operator": 8080, "database": 5432, "agent pods": 8123, "other pods": 8080}
    found = {name: {f"{sources[name][-1].address}:{port}"} for name, port in ports.items()}
    endpoint = cluster.get("endpointslice", "kubernetes", "default")
    server = f"{endpoint['endpoints'][0]['addresses'][0]}:{endpoint['ports'][0]['port']}"
    api, dns = (cluster.get("service", *where)["spec"]["clusterIP"] for where in API_AND_DNS)
    return found | {
        "API server": {f"{api}:443", server},
        "DNS": {f"{dns}:53"},
        "internet": {f"{INTERNET[0]}:{INTERNET[1]}"},
    }


API_AND_DNS = (("kubernetes", "default"), ("kube-dns", "kube-system"))


def reached(cluster: Cluster, source: Source, addresses: set[str]) -> set[str]:
    """Which of the addresses take a connection from the pod."""
    script = " ".join(CONNECT.format(*address.rsplit(":", 1)) for address in addresses) + " wait"
    command = ["kubectl", "exec", "-n", source.namespace, source.pod, "--", "bash", "-c", script]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=60, check=False)
    return set(done.stdout.split())


def matrix(
    cluster: Cluster, sources: Mapping[str, list[Source]], targets: Addresses
) -> dict[tuple[str, str], tuple[int, int]]:
    """(from, to) -> (addresses that were reached, addresses tried); no pod is asked to reach itself."""
    everything = set().union(*targets.values())

    def row(name: str) -> set[str]:
        return reached(cluster, sources[name][0], everything)

    with ThreadPoolExecutor(4) as pool:
        rows = dict(zip(sources, pool.map(row, sources), strict=True))
    cells = {}
    for source, target in TABLE:
        tried = {a for a in targets[target] if not a.startswith(f"{sources[source][0].address}:")}
        cells[source, target] = (len(tried & rows[source]), len(tried))
    return cells


def wrong(cells: Mapping[tuple[str, str], tuple[int, int]], wanted: Callable[[tuple[str, str]], bool]) -> list[str]:
    """What isn't as wanted, as sentences."""
    return [
        f"{source} reaches {found} of {tried} of {target}"
        for (source, target), (found, tried) in cells.items()
        if found != (tried if wanted((source, target)) else 0)
    ]


def settle(look: Callable[[], list[str]]) -> list[str]:
    """Looks until nothing is wrong: nodes take a moment to apply policies. Returns what is still wrong at the end."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(1)
    return found


@contextlib.contextmanager
def unenforced(cluster: Cluster) -> Iterator[None]:
    cluster.tool("policy", "off")
    try:
        yield
    finally:
        cluster.tool("policy", "on")


def test_without_enforcement_everybody_reaches_everything(
    cluster: Cluster, sources: dict[str, list[Source]], targets: Addresses
) -> None:
    with unenforced(cluster):
        assert settle(lambda: wrong(matrix(cluster, sources, targets), lambda _: True)) == []


def test_with_it_exactly_what_the_table_says_is_let_through(
    cluster: Cluster, sources: dict[str, list[Source]], targets: Addresses
) -> None:
    assert settle(lambda: wrong(matrix(cluster, sources, targets), lambda cell: TABLE[cell])) == []


def test_graph_code_reaches_no_node(cluster: Cluster, sources: dict[str, list[Source]]) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    addresses = {f"{node['status']['addresses'][0]['address']}:10250" for node in nodes}
    assert reached(cluster, sources["other pods"][0], addresses) == addresses
    assert reached(cluster, sources["agent pods"][0], addresses) == set()
