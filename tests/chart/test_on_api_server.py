"""What the chart renders, as a real API server sees it: every object is taken whole, and rights are what they seem."""

import pytest
import yaml
from tests.chart.conftest import EVERYTHING, Helm
from tests.support.apiserver import ApiServer, api_server

__all__ = ["api_server"]
pytestmark = pytest.mark.apiserver

NAMESPACES = ("runyard", "runyard-agents", "runyard-sandboxes", "my-agents", "my-sandboxes")
SOMEBODY_ELSES = ("monitoring.coreos.com/v1",)
RIGHTS_KINDS = ("ServiceAccount", "Role", "RoleBinding")


@pytest.fixture(scope="module")
def server(api_server: ApiServer, helm: Helm) -> ApiServer:
    """The server with the release's namespaces, and its rights applied."""
    for name in NAMESPACES:
        api_server.kubectl("create", "namespace", name)
    rights = [found for found in helm.objects() if found["kind"] in RIGHTS_KINDS]
    api_server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    return api_server


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["--values", str(EVERYTHING)],
        ["--set", "postgres.enabled=false,database.external.url=postgresql://o:p@h/d"],
    ],
    ids=["default values", "everything set", "external database"],
)
def test_every_object_is_taken_without_a_field_dropped(server: ApiServer, helm: Helm, values: list[str]) -> None:
    objects = [found for found in helm.objects(*values) if found["apiVersion"] not in SOMEBODY_ELSES]
    text = yaml.safe_dump_all(objects)
    said = server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert len(said.splitlines()) == len(objects)


ALLOWED = {
    "gateway": ["create runs.runyard.dev -n runyard-agents", "patch agents.runyard.dev -n runyard-agents"],
    "operator": [
        "create pods -n runyard-agents",
        "patch leases.coordination.k8s.io/runyard-operator -n runyard-agents",
    ],
    "keys": ["get secrets/runyard-database -n runyard", "create secrets -n runyard"],
    "migration": ["patch secrets/runyard-runtime-database -n runyard-agents"],
    "cleanup": ["patch deployments.apps/runyard-operator -n runyard", "patch agents.runyard.dev -n runyard-agents"],
}
REFUSED = {
    "gateway": ["create agents.runyard.dev -n runyard-agents", "create pods -n runyard-agents"],
    "operator": ["create runs.runyard.dev -n runyard-agents", "create pods --subresource=exec -n runyard-agents"],
    "keys": ["get secrets/other -n runyard", "get secrets/runyard-runtime-database -n runyard-agents"],
    "migration": ["get secrets/runyard-env-openai -n runyard-agents", "get secrets/runyard-database -n runyard"],
    "cleanup": ["patch deployments.apps/runyard-gateway -n runyard", "delete agents.runyard.dev -n runyard-agents"],
}
EVERYBODY = [
    "list secrets -n runyard",
    "list secrets -n runyard-agents",
    "list pods -n default",
    "get nodes",
    "list pods",
]


def may(server: ApiServer, account: str, what: str) -> bool:
    who = f"--as=system:serviceaccount:runyard:runyard-{account}"
    scope = [] if "-n " in what else ["--all-namespaces"]
    return server.try_kubectl("auth", "can-i", *what.split(), *scope, who).returncode == 0


@pytest.mark.parametrize("account", ALLOWED)
def test_an_account_may_do_its_work_and_nothing_else(server: ApiServer, account: str) -> None:
    assert [what for what in ALLOWED[account] if not may(server, account, what)] == []
    assert [what for what in REFUSED[account] + EVERYBODY if may(server, account, what)] == []


@pytest.mark.parametrize("account", ["default"])
def test_agent_pods_and_sandboxes_run_as_nobody(server: ApiServer, account: str) -> None:
    for namespace in ("runyard-agents", "runyard-sandboxes"):
        who = f"--as=system:serviceaccount:{namespace}:{account}"
        for what in ("list pods", "get secrets", "create runs.runyard.dev", "list agents.runyard.dev"):
            assert server.try_kubectl("auth", "can-i", *what.split(), "-n", namespace, who).returncode == 1, what
