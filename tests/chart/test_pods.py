"""Every pod the chart makes, whatever the values, passes Pod Security "restricted" and more."""

import pytest
from tests.chart.conftest import EVERYTHING, ROOT, Helm, Rendered, containers, pods

from runyard_gateway.__main__ import SHUTDOWN_SECONDS


def test_there_are_pods_to_look_at(rendered: Rendered) -> None:
    kinds = {name.partition("/")[0] for name in pods(rendered)}
    assert {"Deployment", "Job"} <= kinds


def test_no_pod_runs_as_root_or_without_seccomp(rendered: Rendered) -> None:
    for name, pod in pods(rendered).items():
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] == 10001, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name


def test_no_container_can_write_to_its_root_or_gain_rights(rendered: Rendered) -> None:
    for name, pod in pods(rendered).items():
        for container in containers(pod):
            expected = {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["securityContext"] == expected, f"{name} {container['name']}"


def test_no_pod_uses_the_host_or_service_environment_variables(rendered: Rendered) -> None:
    for name, pod in pods(rendered).items():
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert not any("hostPath" in volume for volume in pod.get("volumes", [])), name
        assert pod["enableServiceLinks"] is False, name


def test_every_container_has_a_request_and_a_memory_limit(rendered: Rendered) -> None:
    for name, pod in pods(rendered).items():
        for container in containers(pod):
            assert container["resources"]["requests"], f"{name} {container['name']}"
            assert container["resources"]["limits"]["memory"], f"{name} {container['name']}"


def test_every_pod_leaves_a_dead_node_after_ten_seconds(rendered: Rendered) -> None:
    for name, pod in pods(rendered).items():
        seconds = {found.get("key"): found.get("tolerationSeconds") for found in pod["tolerations"]}
        assert seconds["node.kubernetes.io/not-ready"] == 10, name
        assert seconds["node.kubernetes.io/unreachable"] == 10, name


def test_only_what_talks_to_the_api_server_gets_a_token(rendered: Rendered) -> None:
    with_token = {name for name, pod in pods(rendered).items() if pod.get("automountServiceAccountToken") is not False}
    services = {"Deployment/runyard-gateway", "Deployment/runyard-operator"}
    assert with_token - {"Job/runyard-cleanup"} == services | {"Job/runyard-keys"}


def test_the_migration_itself_holds_no_api_token(rendered: Rendered) -> None:
    (pod,) = [pod for name, pod in pods(rendered).items() if name.startswith("Job/runyard-migration-")]
    (main,) = pod["containers"]
    assert "api" not in [mount["name"] for mount in main["volumeMounts"]]


def test_selectors_match_the_pods_and_no_two_parts_share_one(rendered: Rendered) -> None:
    selectors = []
    for found in rendered:
        if found["kind"] in ("Deployment", "StatefulSet"):
            wanted = found["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= found["spec"]["template"]["metadata"]["labels"].items()
            selectors.append(tuple(sorted(wanted.items())))
    assert len(selectors) == len(set(selectors))


@pytest.mark.parametrize("service", ["gateway", "operator"])
def test_replicas_spread_over_nodes_and_zones(rendered: Rendered, service: str) -> None:
    pod = pods(rendered)[f"Deployment/runyard-{service}"]
    spread = {found["topologyKey"]: found for found in pod["topologySpreadConstraints"]}
    assert spread.keys() == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for found in spread.values():
        assert (found["maxSkew"], found["whenUnsatisfiable"]) == (1, "ScheduleAnyway")
        assert found["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == service


def test_an_upgrade_never_leaves_fewer_operators(rendered: Rendered) -> None:
    (found,) = [o for o in rendered if o["kind"] == "Deployment" and o["metadata"]["name"] == "runyard-operator"]
    assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_an_upgrade_never_leaves_fewer_gateways_and_each_leaves_slowly(rendered: Rendered) -> None:
    (found,) = [o for o in rendered if o["kind"] == "Deployment" and o["metadata"]["name"] == "runyard-gateway"]
    assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    left = pod["terminationGracePeriodSeconds"] - container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert left > SHUTDOWN_SECONDS


def test_nodes_are_drained_one_gateway_and_one_operator_at_a_time(rendered: Rendered) -> None:
    budgets = {
        o["metadata"]["name"]: o["spec"]["maxUnavailable"] for o in rendered if o["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {"runyard-gateway": 1, "runyard-operator": 1}


def test_placement_reaches_every_pod_of_its_part(helm: Helm) -> None:
    classes = {"gateway": "gateway-class", "operator": "operator-class", "postgres": "postgres-class"}
    for name, pod in pods(helm.objects("--values", str(EVERYTHING))).items():
        component = name.partition("-")[2]
        assert pod["priorityClassName"] == classes.get(component, "jobs-class"), name
        assert "affinity" in pod, name
        assert pod["nodeSelector"], name
        assert pod["imagePullSecrets"] == [{"name": "registry"}], name
        assert len(pod["tolerations"]) == 3, name


def test_pods_are_not_replaced_by_a_new_chart_that_runs_the_same(rendered: Rendered) -> None:
    for found in rendered:
        if "template" in found.get("spec", {}):
            assert "helm.sh/chart" not in found["spec"]["template"]["metadata"]["labels"], found["metadata"]["name"]


@pytest.mark.parametrize("service", ["gateway", "operator"])
def test_every_variable_that_a_service_gets_is_one_it_reads(rendered: Rendered, service: str) -> None:
    folders = [ROOT / service, ROOT / "process"]
    source = "".join(file.read_text(encoding="utf-8") for folder in folders for file in folder.rglob("*.py"))
    (container,) = pods(rendered)[f"Deployment/runyard-{service}"]["containers"]
    for variable in container["env"]:
        assert f'"{variable["name"]}"' in source, variable["name"]
