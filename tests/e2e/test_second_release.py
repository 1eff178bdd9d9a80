"""A second release beside the first, on an external database; and `helm uninstall`, which leaves nothing that runs.

The external database is a database of its own, with an owner who is no superuser, on the first release's server.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph_sdk.errors import NotFoundError
from tests.e2e.servers import RELEASE as FIRST
from tests.e2e.servers import ROOT, TEST_IMAGE, App, Cluster, Server, connected, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RELEASE = "second"
AGENTS = f"{RELEASE}-agents"
PASSWORD = "0f5e0b6c5a"
OWNER_URL = f"postgresql://{RELEASE}_owner:{PASSWORD}@{FIRST}-postgres.{FIRST}.svc:5432/{RELEASE}?connect_timeout=5"
DATABASE_PODS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": FIRST}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/component": "postgres"}},
}
VALUES = {
    "crds": {"enabled": False},
    "postgres": {"enabled": False},
    "database": {"rolePrefix": RELEASE, "external": {"url": OWNER_URL}},
    "gateway": {"replicas": 1},
    "networkPolicies": {"database": {"to": [DATABASE_PODS]}},
}
LET_IN = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": f"let-{RELEASE}-in", "namespace": FIRST},
    "spec": {
        "podSelector": DATABASE_PODS["podSelector"],
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
                    for name in (RELEASE, AGENTS)
                ]
            }
        ],
    },
}


PSQL = (
    'PGPASSWORD=$(cat /etc/runyard/database/owner-password) exec psql -h /run/runyard -U runyard_owner -Atc "$1" "$2"'
)


def sql(cluster: Cluster, statement: str, database: str = "postgres") -> str:
    """What the first release's server answers its superuser."""
    command = ["sh", "-c", PSQL, "sh", statement, database]
    return cluster.kubectl("exec", "-n", FIRST, f"statefulset/{FIRST}-postgres", "--", *command).strip()


@pytest.fixture(scope="module")
def second(cluster: Cluster) -> Iterator[Server]:
    """The release with an Agent that is ready; removed, with all that an uninstall keeps, at the end."""
    sql(cluster, f"CREATE ROLE {RELEASE}_owner LOGIN CREATEROLE PASSWORD '{PASSWORD}'")
    sql(cluster, f"CREATE DATABASE {RELEASE} OWNER {RELEASE}_owner")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(LET_IN))
    chart = str(ROOT / "charts" / "runyard")
    values = ["--values", "-"]
    try:
        run(
            ["helm", "install", RELEASE, chart, "-n", RELEASE, "--create-namespace", "--wait", "--timeout=3m", *values],
            env=cluster.env,
            stdin=json.dumps(VALUES),
            timeout=200,
        )
        agent = {
            "apiVersion": "runyard.dev/v1alpha1",
            "kind": "Agent",
            "metadata": {"name": "testgraphs"},
            "spec": {"image": TEST_IMAGE},
        }
        cluster.kubectl("apply", "-n", AGENTS, "-f", "-", stdin=json.dumps(agent))
        cluster.kubectl("wait", "agent", "--all", "-n", AGENTS, "--for=condition=Ready", "--timeout=90s")
        yield cluster.server(RELEASE)
    finally:
        cluster.kubectl("delete", "namespace", RELEASE, AGENTS, f"{RELEASE}-sandboxes", "--ignore-not-found")
        cluster.kubectl("delete", "networkpolicy", "-n", FIRST, f"let-{RELEASE}-in", "--ignore-not-found")


@pytest.fixture
async def second_app(second: Server) -> Any:
    async with connected(second) as app:
        yield app


async def test_it_runs_on_an_external_database_by_roles_of_its_own(cluster: Cluster, second_app: App) -> None:
    thread = (await second_app.client.threads.create())["thread_id"]
    state = await second_app.client.runs.wait(thread, "steps", input={"log": [], "count": 3})
    assert state["log"] == ["step 0", "step 1", "step 2"]
    assert sql(cluster, f"SELECT status FROM runs WHERE thread_id = '{thread}'", RELEASE) == "success"
    assert sql(cluster, f"SELECT count(*) FROM runs WHERE thread_id = '{thread}'", "runyard") == "0"
    owners = sql(cluster, "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'", RELEASE)
    assert owners == f"{RELEASE}_owner"
    users = sql(cluster, f"SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = '{RELEASE}' ORDER BY 1")
    assert users.split() == [f"{RELEASE}_gateway", f"{RELEASE}_operator", f"{RELEASE}_runtime"]


async def test_each_release_sees_its_own_alone(cluster: Cluster, cluster_app: App, second_app: App) -> None:
    thread = (await second_app.client.threads.create())["thread_id"]
    with pytest.raises(NotFoundError):
        await cluster_app.client.threads.get(thread)
    assert "hello" not in {a["graph_id"] for a in await second_app.client.assistants.search(limit=100)}


def until(check: Callable[[], object], what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.5)


def left(cluster: Cluster, namespace: str, kinds: str) -> set[str]:
    return set(cluster.kubectl("get", kinds, "-n", namespace, "-o", "name").split())


RUNNING_KINDS = "pods,deployments,statefulsets,jobs,services,roles,rolebindings,networkpolicies,poddisruptionbudgets"
KEPT_SECRETS = {f"secret/{RELEASE}-{name}" for name in ("keys", "api-key", "database")}


async def test_an_uninstall_in_the_middle_of_runs_leaves_no_pod_finalizer_or_hook(
    cluster: Cluster, second_app: App
) -> None:
    thread = (await second_app.client.threads.create())["thread_id"]
    started = await second_app.client.runs.create(
        thread, "steps", input={"log": [], "count": 400}, config={"recursion_limit": 500}
    )
    name = started["run_id"]
    cluster.kubectl("wait", f"run/{name}", "-n", AGENTS, "--for=jsonpath={.status.state}=running", "--timeout=20s")

    cluster.helm("uninstall", RELEASE, "-n", RELEASE, "--timeout=4m")

    assert left(cluster, AGENTS, "pods") == set()
    assert left(cluster, AGENTS, "agents,runs") >= {"agent.runyard.dev/testgraphs", f"run.runyard.dev/{name}"}
    assert "finalizers" not in cluster.get("agent", "testgraphs", AGENTS)["metadata"]
    for namespace in (RELEASE, AGENTS, f"{RELEASE}-sandboxes"):
        until(lambda ns=namespace: not left(cluster, ns, RUNNING_KINDS), f"nothing runs in {namespace}", 60)  # type: ignore[misc]
        assert left(cluster, namespace, "serviceaccounts") == {"serviceaccount/default"}
    assert {s for s in left(cluster, RELEASE, "secrets") if "helm" not in s} == KEPT_SECRETS
    assert left(cluster, RELEASE, "configmaps") == {"configmap/kube-root-ca.crt"}


def test_then_its_namespaces_go_without_waiting_for_anybody(cluster: Cluster, second: Server) -> None:
    cluster.kubectl("delete", "namespace", RELEASE, AGENTS, f"{RELEASE}-sandboxes", "--timeout=60s", timeout=70)


def test_the_first_release_never_noticed(cluster: Cluster, second: Server) -> None:
    cluster.kubectl("wait", "agent", "--all", "-n", f"{FIRST}-agents", "--for=condition=Ready", "--timeout=5s")
