"""Who may do what: rights are namespaced and exactly those of docs; the chart holds no secret value."""

from typing import Any

import pytest
from tests.chart.conftest import EVERYTHING, Helm, Rendered, containers, pods
from tests.chart.principals import PRINCIPALS, rows
from tests.support.reach import PAGE


def test_there_are_no_cluster_wide_rights(rendered: Rendered) -> None:
    assert not [found for found in rendered if found["kind"].startswith("ClusterRole")]


def test_no_right_is_a_wildcard(rendered: Rendered) -> None:
    for found in rendered:
        for rule in found.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], found["metadata"]["name"]


@pytest.mark.parametrize("principal", PRINCIPALS)
def test_what_a_principal_holds_is_its_row_in_docs_security(helm: Helm, principal: str) -> None:
    assert rows(helm.objects())[principal] in PAGE.read_text(encoding="utf-8").splitlines()


def test_values_change_nobodys_rights(helm: Helm) -> None:
    kept = ["--set", "namespaces.agents=,namespaces.sandboxes="]
    plain, all_set = helm.objects(), helm.objects("--values", str(EVERYTHING), *kept)
    assert rows(plain) == rows(all_set)


def test_with_an_external_database_the_keys_job_alone_reads_the_owners_secret(helm: Helm) -> None:
    plain = rows(helm.objects("--set", "namespaces.keep=false"))
    external = helm.objects("--set", "postgres.enabled=false,database.external.secretName=mine")
    for name, pod in pods(external).items():
        readers = "'name': 'mine'" in str(pod)
        assert readers == (name == "Job/runyard-keys"), name
    assert "owner-url" not in plain["keys Job"]


def test_every_account_is_a_principal_and_no_default_account_is_used(rendered: Rendered) -> None:
    accounts = {found["metadata"]["name"] for found in rendered if found["kind"] == "ServiceAccount"}
    assert accounts == {pod["serviceAccountName"] for pod in pods(rendered).values() if "serviceAccountName" in pod}
    for name, pod in pods(rendered).items():
        if "serviceAccountName" not in pod:
            assert pod["automountServiceAccountToken"] is False, name


def test_rights_are_not_added_to_the_roles_of_the_cluster(helm: Helm) -> None:
    assert "aggregate-to" not in helm.text("--values", str(EVERYTHING))


def test_what_hooks_may_do_goes_when_they_have_succeeded(rendered: Rendered) -> None:
    hooks = [found for found in rendered if "helm.sh/hook" in found["metadata"].get("annotations", {})]
    assert {found["kind"] for found in hooks} == {"ServiceAccount", "Role", "RoleBinding", "Job"}
    for found in hooks:
        assert "hook-succeeded" in found["metadata"]["annotations"]["helm.sh/hook-delete-policy"]


def test_a_release_is_taken_down_before_it_is_deleted_whatever_stays(helm: Helm) -> None:
    for values in ("namespaces.keep=false", "namespaces.create=false", "crds.keep=false"):
        (job,) = [
            found
            for found in helm.objects("--set", values)
            if found["metadata"]["name"] == "runyard-cleanup" and found["kind"] == "Job"
        ]
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"


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
