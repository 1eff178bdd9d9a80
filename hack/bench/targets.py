"""The servers that are measured: `runyard dev`, the chart on the native cluster, and the peer beside both.

Used by __main__.py; starts them and gives what the measurements need to know of them.
"""

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import psycopg
from hack.bench import peer
from tests.e2e.servers import RELEASE, Cluster, Server, embedded, install

_FLOOR_DATABASE = "bench_floor"
_OPEN_TO_THIS_MACHINE = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "bench", "namespace": RELEASE},
    "spec": {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"ipBlock": {"cidr": "172.30.0.0/24"}}]}],
    },
}
"""The floor's process on this machine uses the release's Postgres, which the chart's policies keep for its own pods."""
_OPEN_SECONDS = 30


@dataclass(frozen=True)
class Target:
    """A gateway to measure.

    `one`: a single replica of it. `floor_database`: for the floor, of the same kind as the target's. `database`: the
    owner's URL of the target's own, None where it is sqlite. `gateway`, `runtime`: names of parts in `processes`.
    """

    name: str
    server: Server
    one: Server
    floor_database: str
    gateway: str
    runtime: str
    database: str | None = None
    cluster: Cluster | None = None


@contextmanager
def embedded_target() -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as server:
        floor = str(Path(folder) / "floor.db")
        yield Target("runyard dev (sqlite)", server, server, floor, gateway="runyard dev", runtime="runyard dev")


@contextmanager
def cluster_target() -> Iterator[Target]:
    """The chart on a new native cluster, which stays up."""
    cluster = Cluster()
    install(cluster)
    yield installed(cluster)


def installed(cluster: Cluster) -> Target:
    """The release that is installed already."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_OPEN_TO_THIS_MACHINE))
    server, owner = cluster.server(), _owner_url(cluster)
    one = Server(f"http://{_gateway_pod(cluster)}:8000", server.headers)
    floor = _floor_database(owner)
    return Target("cluster (Postgres)", server, one, floor, "gateway", "runtime", owner.geturl(), cluster)


@contextmanager
def peer_target(*, jobs: int) -> Iterator[Server]:
    """`langgraph dev`. Raises peer.NoPeer."""
    with tempfile.TemporaryDirectory() as folder, peer.serving(Path(folder), jobs=jobs) as url:
        yield Server(url)


def _gateway_pod(cluster: Cluster) -> str:
    pods = json.loads(cluster.kubectl("get", "pods", "-n", RELEASE, "-o", "json"))["items"]
    addresses = (p["status"]["podIP"] for p in pods if p["metadata"]["name"].startswith(f"{RELEASE}-gateway-"))
    return str(next(addresses))


def _owner_url(cluster: Cluster) -> SplitResult:
    """The bundled Postgres by its Service's address, as the owner of Runyard's database."""
    secret = cluster.get("secret", f"{RELEASE}-database", RELEASE)["data"]
    owner = urlsplit(base64.b64decode(secret["owner-url"]).decode())
    service = cluster.get("service", f"{RELEASE}-postgres", RELEASE)["spec"]["clusterIP"]
    return owner._replace(netloc=owner.netloc.replace(owner.hostname or "", service))


def _connect(url: str) -> "psycopg.Connection[tuple[str, ...]]":
    """Waits until the policy lets us in."""
    end = time.monotonic() + _OPEN_SECONDS
    while True:
        try:
            return psycopg.connect(url, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
        time.sleep(0.5)


def _floor_database(owner: SplitResult) -> str:
    """A new database on the same server; returns its URL."""
    with _connect(owner.geturl()) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {_FLOOR_DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {_FLOOR_DATABASE}")
    return owner._replace(path=f"/{_FLOOR_DATABASE}").geturl()
