"""`helm upgrade` replaces both gateways and no request fails: each is taken out of the Service before it ends."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.e2e.servers import RELEASE, ROOT, Cluster, Server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def ask(server: Server, until: threading.Event) -> list[str]:
    """Makes a thread and reads it, each on a new connection, again and again; returns what went wrong."""
    wrong: list[str] = []
    rounds = 0
    while not until.is_set():
        rounds += 1
        for method, path, body in (("POST", "/threads", {}), ("GET", "/info", None)):
            try:
                answer = httpx.request(method, server.url + path, json=body, headers=server.headers, timeout=10)
                if answer.status_code != 200:
                    wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            except httpx.HTTPError as error:
                wrong.append(f"{method} {path}: {error!r}")
    assert rounds > 10, "hardly a request was made"
    return wrong


def gateways(cluster: Cluster) -> set[str]:
    selector = f"app.kubernetes.io/component=gateway,app.kubernetes.io/instance={RELEASE}"
    return set(cluster.kubectl("get", "pods", "-n", RELEASE, "-l", selector, "-o", "name").split())


def test_no_request_fails_while_gateways_are_replaced(cluster: Cluster, cluster_server: Server) -> None:
    before, done = gateways(cluster), threading.Event()
    with ThreadPoolExecutor(3) as pool:
        clients = [pool.submit(ask, cluster_server, done) for _ in range(3)]
        try:
            cluster.helm(
                "upgrade",
                RELEASE,
                str(ROOT / "charts" / "runyard"),
                *("-n", RELEASE, "--reuse-values", "--wait", "--timeout=2m"),
                *("--set", f"gateway.podAnnotations.rolled=at-{uuid.uuid4().hex}"),
            )
            cluster.kubectl("wait", "-n", RELEASE, *sorted(before), "--for=delete", "--timeout=60s")
        finally:
            done.set()
    assert [problem for client in clients for problem in client.result()] == []
    assert len(gateways(cluster) - before) == 2
