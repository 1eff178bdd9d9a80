"""The NetworkPolicies: what they let through is the table of docs/security.md, and values change it as they say."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.chart.conftest import Helm, Rendered, pods
from tests.chart.policies import Endpoint, may_reach
from tests.support.reach import reach_table

from runyard_api.names import LABEL_AGENT, LABEL_MANAGED_BY, MANAGED_BY, RUNTIME_PORT

TABLE = reach_table()


def part(component: str, port: int = 0) -> Endpoint:
    names = {"name": "runyard", "instance": "runyard", "component": component}
    return Endpoint("runyard", {f"app.kubernetes.io/{name}": value for name, value in names.items()}, port=port)


PLACES = {
    "gateway": part("gateway", 8000),
    "operator": part("operator", 8080),
    "database": part("postgres", 5432),
    "keys Job": part("keys"),
    "migration Job": part("migration"),
    "cleanup Job": part("cleanup"),
    "agent pods": Endpoint("runyard-agents", {LABEL_MANAGED_BY: MANAGED_BY, LABEL_AGENT: "hello"}, port=RUNTIME_PORT),
    "others in the agents namespace": Endpoint("runyard-agents"),
    "the sandboxes namespace": Endpoint("runyard-sandboxes"),
    "other pods": Endpoint("default", port=8080),
    "API server": Endpoint("", address="172.30.0.2", port=6443),
    "DNS": Endpoint("kube-system", {"k8s-app": "kube-dns"}, port=53),
    "internet": Endpoint("", address="203.0.113.10", port=8443),
}


def policies(rendered: Rendered) -> list[dict[str, Any]]:
    return [found for found in rendered if found["kind"] == "NetworkPolicy"]


@pytest.fixture(scope="module")
def by_default(helm: Helm) -> list[dict[str, Any]]:
    return policies(helm.objects())


@pytest.mark.parametrize(("source", "target"), TABLE, ids=" to ".join)
def test_what_is_let_through_is_what_the_table_says(by_default: list[dict[str, Any]], source: str, target: str) -> None:
    assert may_reach(by_default, PLACES[source], PLACES[target]) == TABLE[source, target]


def test_the_table_names_every_place() -> None:
    sources = {source for source, _ in TABLE}
    assert sources | {target for _, target in TABLE} == PLACES.keys()
    assert sources >= PLACES.keys() - {"API server", "DNS", "internet"}


def test_every_pod_of_the_chart_has_a_policy(rendered: Rendered) -> None:
    chosen = {
        found["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component")
        for found in policies(rendered)
        if found["spec"]["podSelector"].get("matchLabels")
    }
    components = {
        found["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for found in rendered
        if "template" in found.get("spec", {})
    }
    assert len(pods(rendered)) >= len(components) > 0
    assert components <= chosen


@pytest.mark.parametrize("address", ["10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"])
def test_agent_pods_reach_nothing_private_on_any_port(by_default: list[dict[str, Any]], address: str) -> None:
    for port in (80, 443, 5432, 6443):
        assert not may_reach(by_default, PLACES["agent pods"], Endpoint("", address=address, port=port))


def test_agent_pods_stay_off_private_ipv6_too(by_default: list[dict[str, Any]]) -> None:
    agent = PLACES["agent pods"]
    assert may_reach(by_default, agent, Endpoint("", address="2001:db8::1", port=443))
    assert not may_reach(by_default, agent, Endpoint("", address="fd00::1", port=443))


def test_one_switch_makes_none(helm: Helm) -> None:
    assert policies(helm.objects("--set", "networkPolicies.enabled=false")) == []


def test_the_gateway_can_be_closed_to_all_but_an_ingress(helm: Helm) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    found = policies(helm.objects("--set-json", f"networkPolicies.gateway.from=[{json.dumps(peer)}]"))
    assert may_reach(found, Endpoint("ingress"), PLACES["gateway"])
    assert not may_reach(found, Endpoint("default"), PLACES["gateway"])


def test_agents_can_be_kept_off_the_internet_and_let_to_a_model(helm: Helm) -> None:
    rule = {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "models"}}}]}
    found = policies(
        helm.objects(
            "--set",
            "networkPolicies.agents.internet=false",
            "--set-json",
            f"networkPolicies.agents.egress=[{json.dumps(rule)}]",
        )
    )
    assert not may_reach(found, PLACES["agent pods"], PLACES["internet"])
    assert may_reach(found, PLACES["agent pods"], Endpoint("models", port=80))


def test_an_external_database_is_reached_where_the_values_say_it_is(helm: Helm) -> None:
    external = "postgres.enabled=false,database.external.secretName=mine"
    database = Endpoint("", address="192.0.2.7", port=5432)
    anywhere = policies(helm.objects("--set", external))
    there = policies(helm.objects("--set", f"{external},networkPolicies.database.to[0].ipBlock.cidr=192.0.2.0/24"))
    for name in ("gateway", "operator", "migration Job", "agent pods"):
        assert may_reach(anywhere, PLACES[name], database), name
        assert may_reach(there, PLACES[name], database), name
        if name != "agent pods":  # which reach the internet
            assert not may_reach(there, PLACES[name], replace(database, address="192.0.3.7")), name
    assert not may_reach(anywhere, PLACES["keys Job"], database)


def test_those_whom_the_values_name_scrape_operator_and_agent_pods(helm: Helm) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    found = policies(helm.objects("--set-json", f"networkPolicies.metrics.from=[{json.dumps(peer)}]"))
    for place in (replace(PLACES["gateway"], port=9090), PLACES["operator"], PLACES["agent pods"]):
        assert may_reach(found, Endpoint("monitoring"), place), place
        assert not may_reach(found, Endpoint("default"), place), place
