"""PodMonitors, alerts and the dashboard: each under its switch, on ports that exist, of metrics that exist."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.chart.conftest import EVERYTHING, ROOT, Helm, Rendered, pods

from runyard_gateway import metrics as of_gateway
from runyard_gateway.load import Load
from runyard_operator import metrics as of_operator
from runyard_operator.seen import RUNTIME_PORT_NAME
from runyard_runtime import metrics as of_runtime

SWITCHES = {"podMonitors": "PodMonitor", "alerts": "PrometheusRule", "dashboard": "ConfigMap"}
NAME = re.compile(r"\b(?:runyard|process)_\w+")


def registered() -> set[str]:
    """The names of all series that the services expose, as Prometheus stores them."""
    nothing = of_operator.Now(leading=False, lag=0.0, queues=(), agents=(), runs={})
    idle = of_gateway.Present(Load(1, 1), of_gateway.Tally(), lambda: (0, 0), dict)
    registries = [m.registry for m in (of_gateway.Metrics(idle), of_operator.Metrics(), of_runtime.Metrics())]
    families = [family for registry in registries for family in registry.collect()]
    families += of_operator.Present(lambda: nothing).collect()
    return {name for family in families for name in _series(family.name, family.type)}


def _series(name: str, kind: str) -> Iterator[str]:
    if kind == "counter":
        yield f"{name}_total"
    elif kind == "histogram":
        yield from (f"{name}_{part}" for part in ("bucket", "count", "sum"))
    else:
        yield name


def of_kind(rendered: Rendered, kind: str) -> list[dict[str, Any]]:
    return [found for found in rendered if found["kind"] == kind]


@pytest.fixture(scope="module")
def everything(helm: Helm) -> Rendered:
    return helm.objects("--values", str(EVERYTHING))


@pytest.fixture(scope="module")
def board(everything: Rendered) -> dict[str, Any]:
    (found,) = of_kind(everything, "ConfigMap")
    parsed: dict[str, Any] = json.loads(found["data"]["runyard.json"])
    return parsed


def test_by_default_there_is_none_of_them(helm: Helm) -> None:
    rendered = helm.objects()
    assert not [found for kind in SWITCHES.values() for found in of_kind(rendered, kind)]


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_has_a_switch_and_labels_of_its_own(helm: Helm, switch: str) -> None:
    scraper = "networkPolicies.metrics.from[0].ipBlock.cidr=192.0.2.1/32"
    rendered = helm.objects("--set", f"metrics.{switch}.enabled=true,metrics.{switch}.labels.mine=yes-mine,{scraper}")
    made = {found["kind"] for kind in SWITCHES.values() for found in of_kind(rendered, kind)}
    assert made == {SWITCHES[switch]}
    for found in of_kind(rendered, SWITCHES[switch]):
        assert found["metadata"]["labels"]["mine"] == "yes-mine"


def test_pod_monitors_scrape_ports_that_the_pods_have(everything: Rendered) -> None:
    monitors = of_kind(everything, "PodMonitor")
    assert monitors
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["interval"] == "15s"
        wanted = monitor["spec"]["selector"]["matchLabels"]
        if monitor["metadata"]["name"] == "runyard-agent-pods":
            assert (monitor["metadata"]["namespace"], endpoint["port"]) == ("my-agents", RUNTIME_PORT_NAME)
            continue
        (name,) = [
            f"{found['kind']}/{found['metadata']['name']}"
            for found in everything
            if "template" in found.get("spec", {})
            and wanted.items() <= found["spec"]["template"]["metadata"]["labels"].items()
        ]
        ports = {port["name"] for container in pods(everything)[name]["containers"] for port in container["ports"]}
        assert endpoint["port"] in ports, name


def test_the_dashboard_shows_only_metrics_that_exist(board: dict[str, Any]) -> None:
    assert used(target["expr"] for panel in board["panels"] for target in panel["targets"]) <= registered()


def test_alerts_are_about_metrics_that_exist(everything: Rendered) -> None:
    (rule,) = of_kind(everything, "PrometheusRule")
    rules = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert used(one["expr"] for one in rules) <= registered()
    for one in rules:
        assert one["labels"]["severity"] in ("critical", "warning"), one["alert"]
        assert one["annotations"]["summary"].endswith((".", "?")), one["alert"]


def test_the_dashboard_asks_for_one_release(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        for target in panel["targets"]:
            scopes = re.findall(r'namespace="\$(namespace|agents)"', target["expr"])
            assert len(scopes) == len(NAME.findall(target["expr"])), panel["title"]


def test_docs_explain_every_series_that_there_is_and_no_other() -> None:
    section = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("\n**Metrics** ")[2]
    named = set(re.findall(r"`(runyard_\w+)`", section))
    series = {re.sub(r"_(bucket|count|sum)$", "", name) for name in registered() if name.startswith("runyard_")}
    assert series - named == set()
    assert named - series <= READ_AT_EACH_SCRAPE


READ_AT_EACH_SCRAPE = {"runyard_runtime_slots", "runyard_runtime_slots_busy"}
"""Registered when a pod starts."""


def used(expressions: Iterable[str]) -> set[str]:
    found = {name for text in expressions for name in NAME.findall(text)}
    assert found
    return found
