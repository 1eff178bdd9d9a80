"""What the chart makes beside pods: CRDs, namespaces, Jobs, notes."""

from typing import Any

import yaml
from tests.chart.conftest import CHART, EVERYTHING, ROOT, Helm, Rendered

KEEP = ("helm.sh/resource-policy", "keep")


def of_kind(rendered: Rendered, kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in rendered if found["kind"] == kind}


def test_the_crds_are_those_of_the_models(helm: Helm) -> None:
    installed = of_kind(helm.objects(), "CustomResourceDefinition")
    sources = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert {found["metadata"]["name"] for found in sources} == installed.keys()
    for source in sources:
        rendered = installed[source["metadata"]["name"]]
        assert rendered["spec"] == source["spec"], "helm changed a number or dropped a field"
        assert KEEP in rendered["metadata"]["annotations"].items()


def test_the_crds_can_be_left_out_or_given_up(helm: Helm) -> None:
    assert not of_kind(helm.objects("--set", "crds.enabled=false"), "CustomResourceDefinition")
    for found in of_kind(helm.objects("--set", "crds.keep=false"), "CustomResourceDefinition").values():
        assert KEEP not in found["metadata"].get("annotations", {}).items()


def test_both_namespaces_enforce_pod_security_and_outlive_the_release(helm: Helm) -> None:
    namespaces = of_kind(helm.objects(), "Namespace")
    assert namespaces.keys() == {"runyard-agents", "runyard-sandboxes"}
    for found in namespaces.values():
        assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert KEEP in found["metadata"]["annotations"].items()


def test_namespaces_can_be_somebody_elses(helm: Helm) -> None:
    rendered = helm.objects("--set", "namespaces.create=false,namespaces.agents=theirs")
    assert not of_kind(rendered, "Namespace")
    assert of_kind(rendered, "Role")["runyard-operator"]["metadata"]["namespace"] == "theirs"


def test_the_migration_is_no_hook_and_a_new_job_in_every_revision(helm: Helm) -> None:
    def migration(*arguments: str) -> dict[str, Any]:
        jobs = of_kind(helm.objects(*arguments), "Job")
        (found,) = [job for name, job in jobs.items() if name.startswith("runyard-migration-")]
        assert "annotations" not in found["metadata"]
        return found

    plain, same = migration(), migration("--set", "gateway.replicas=4")
    other = migration("--set", "images.tag=9.9.9")
    assert plain == same
    assert plain["metadata"]["name"].startswith("runyard-migration-1-")
    assert plain["metadata"]["name"] != other["metadata"]["name"]


def test_operators_elect_by_the_lease_of_the_release(rendered: Rendered) -> None:
    (lease,) = of_kind(rendered, "Lease").values()
    (container,) = of_kind(rendered, "Deployment")["runyard-operator"]["spec"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["RUNYARD_LEASE_NAME"] == lease["metadata"]["name"]
    assert environment["RUNYARD_AGENTS_NAMESPACE"] == lease["metadata"]["namespace"]


def test_every_value_reaches_the_objects_it_is_for(helm: Helm) -> None:
    text = helm.text("--values", str(EVERYTHING))
    for expected in (
        "registry.example/runyard-gateway:1.2.3",
        "https://a.example,https://b.example",
        "max_connections=500",
        "storageClassName: fast",
        "storage: 100Gi",
        "example.com/internal",
        "value: models-",
        "value: team_a_owner",
        "type: LoadBalancer",
        "priorityClassName: operator-class",
        "priorityClassName: gateway-class",
        "priorityClassName: postgres-class",
        "priorityClassName: jobs-class",
        "example.com/team: operators",
        "example.com/team: gateways",
        "example.com/team: databases",
        "example.com/team: jobs",
        "disk: slow",
        "value: json",
        "value: warning",
        "cidr: 198.51.100.7/32",
        "port: 8443",
        "port: 8444",
        "port: 5353",
        "kubernetes.io/metadata.name: openshift-dns",
        "kubernetes.io/metadata.name: monitoring",
        "kubernetes.io/metadata.name: ingress",
        "kubernetes.io/metadata.name: models",
    ):
        assert expected in text, expected


def test_without_the_bundled_database_nothing_of_it_is_left(helm: Helm) -> None:
    text = helm.text("--set", "postgres.enabled=false,database.external.secretName=my-database")
    assert "StatefulSet" not in text
    assert "name: my-database" in text


def test_an_owners_url_given_as_a_value_is_there_for_the_keys_job_alone(helm: Helm) -> None:
    url = "postgresql://owner:secret@db.example:5433/yard?sslmode=require"
    rendered = helm.objects("--set", f"postgres.enabled=false,database.external.url={url}")
    (secret,) = of_kind(rendered, "Secret").values()
    assert secret["stringData"] == {"url": url}
    assert secret["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    name = secret["metadata"]["name"]
    users = [found["metadata"]["name"] for found in rendered if f"'name': '{name}'" in str(found.get("spec"))]
    assert users == ["runyard-keys"]


def notes(helm: Helm, *arguments: str) -> str:
    done = helm.run("install", "yard", str(CHART), "-n", "prod", "--dry-run=client", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


def test_the_notes_give_commands_for_this_release(helm: Helm) -> None:
    text = notes(helm)
    assert "kubectl port-forward --namespace prod service/yard-gateway 8000:8000" in text
    assert "kubectl get secret yard-api-key --namespace prod --output jsonpath='{.data.key}' | base64 -d" in text
    assert "curl -s http://localhost:8000/" in text
    assert "--namespace yard-agents" in text


def test_the_notes_ask_for_no_key_where_none_is_needed(helm: Helm) -> None:
    text = notes(helm, "--set", "gateway.auth=none")
    assert "api-key" not in text
    assert "curl -s http://localhost:8000/" in text
