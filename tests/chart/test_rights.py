"""Who may do what: rights are namespaced and exactly those of docs; the chart holds no secret value."""

from typing import Any

from tests.chart.conftest import Helm, Rendered, containers, pods

WATCH = {"get", "list", "watch"}


def rights(rendered: Rendered, name: str) -> dict[str, set[str]]:
    """Resource (with group and names, where given) -> verbs, of the Role with this name."""
    (role,) = [found for found in rendered if found["kind"] == "Role" and found["metadata"]["name"] == name]
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            for only in rule.get("resourceNames", [""]):
                key = "/".join(part for part in (rule["apiGroups"][0], resource) if part) + (f" {only}" if only else "")
                found.setdefault(key, set()).update(rule["verbs"])
    return found


def test_there_are_no_cluster_wide_rights(rendered: Rendered) -> None:
    assert not [found for found in rendered if found["kind"].startswith("ClusterRole")]


def test_no_right_is_a_wildcard(rendered: Rendered) -> None:
    for found in rendered:
        for rule in found.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], found["metadata"]["name"]


def test_the_gateway_makes_runs_and_reads_agents(rendered: Rendered) -> None:
    assert rights(rendered, "runyard-gateway") == {
        "runyard.dev/runs": {"create", "patch"} | WATCH,
        "runyard.dev/agents": WATCH,
    }


def test_the_operator_holds_its_kinds_and_pods_but_no_secrets(rendered: Rendered) -> None:
    assert rights(rendered, "runyard-operator") == {
        "runyard.dev/agents": WATCH,
        "runyard.dev/agents/status": {"patch"},
        "runyard.dev/runs": {"delete"} | WATCH,
        "runyard.dev/runs/status": {"patch"},
        "pods": {"create", "delete"} | WATCH,
        "events.k8s.io/events": {"create"},
    }


def test_the_jobs_make_secrets_and_read_only_their_own(rendered: Rendered) -> None:
    own = {"get", "patch"}
    assert rights(rendered, "runyard-keys") == {
        "secrets": {"create"},
        "secrets runyard-keys": own,
        "secrets runyard-api-key": own,
        "secrets runyard-database": own,
    }
    assert rights(rendered, "runyard-migration") == {"secrets": {"create"}, "secrets runyard-runtime-database": own}


def test_what_hooks_may_do_goes_when_they_have_succeeded(rendered: Rendered) -> None:
    hooks = [found for found in rendered if "helm.sh/hook" in found["metadata"].get("annotations", {})]
    assert {found["kind"] for found in hooks} == {"ServiceAccount", "Role", "RoleBinding", "Job"}
    for found in hooks:
        assert "hook-succeeded" in found["metadata"]["annotations"]["helm.sh/hook-delete-policy"]


def test_agent_pods_are_removed_after_an_uninstall_that_keeps_their_namespace(helm: Helm) -> None:
    assert rights(helm.objects(), "runyard-cleanup") == {"pods": {"list", "delete"}}
    # In a namespace that goes away nothing can be created, and everything goes with it.
    assert "runyard_kube.cleanup" not in helm.text("--set", "namespaces.keep=false")
    assert "runyard_kube.cleanup" in helm.text("--set", "namespaces.keep=false,namespaces.create=false")


def test_templates_hold_no_secret_and_rendering_twice_gives_the_same(helm: Helm, rendered: Rendered) -> None:
    assert not [found for found in rendered if found["kind"] == "Secret"]
    assert helm.text() == helm.text()


def test_each_service_reads_its_own_database_url_alone(rendered: Rendered) -> None:
    for who in ("gateway", "operator"):
        assert database_keys(pods(rendered)[f"Deployment/runyard-{who}"]) == {f"{who}-url"}


def database_keys(pod: dict[str, Any]) -> set[str]:
    """Which keys of the Secret with the database's URLs a pod gets as environment variables."""
    references = [
        variable["valueFrom"]["secretKeyRef"]
        for container in containers(pod)
        for variable in container.get("env", [])
        if "secretKeyRef" in variable.get("valueFrom", {})
    ]
    return {reference["key"] for reference in references if reference["name"] == "runyard-database"}
