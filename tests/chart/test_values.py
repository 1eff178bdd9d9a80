"""The values: all described, wrong ones refused with their path, every one of them used."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.conftest import CHART, EVERYTHING, ROOT, Helm
from tests.chart.schema import SCHEMA, described, set_one_by_one

UNUSED = ".global"
"""Helm's own, and the only open object."""


def given(values: Any, listed: set[str], path: str = "") -> Iterator[str]:
    """Paths of a values file's entries, as deep as `listed` goes."""
    if path in listed or not isinstance(values, dict):
        yield path
        return
    for name, inner in values.items():
        yield from given(inner, listed, f"{path}.{name}")


def test_every_value_has_a_description_a_type_and_closed_objects() -> None:
    for path, schema in described():
        assert schema.get("description", "").endswith("."), path
        assert "type" in schema, path
        if schema["type"] == "object" and path != UNUSED:
            assert "additionalProperties" in schema, path
            assert schema["additionalProperties"] is not True, path


def test_values_yaml_and_everything_yaml_hold_exactly_the_values_of_the_schema() -> None:
    listed = set(set_one_by_one())
    for file, absent in ((CHART / "values.yaml", {UNUSED}), (EVERYTHING, set[str]())):
        assert set(given(yaml.safe_load(file.read_text()), listed)) == listed - absent, file


def test_everything_yaml_sets_no_default() -> None:
    listed = set(set_one_by_one())
    files = [yaml.safe_load(path.read_text()) for path in (CHART / "values.yaml", EVERYTHING)]
    same = {path for path in listed - {UNUSED} if at(files[0], path) == at(files[1], path)}
    # A default that other values of everything.yaml need, or whose opposite leaves out what it sets.
    needed = (".crds.enabled", ".namespaces.create", ".postgres.enabled", ".networkPolicies.enabled")
    assert same <= {*needed, ".database.external.secretName", ".gateway.oidc.issuer"}


def at(values: Any, path: str) -> Any:
    for name in path.strip(".").split("."):
        values = values[name]
    return values


def test_no_definition_is_unused() -> None:
    text = (CHART / "values.schema.json").read_text()
    for name in SCHEMA["definitions"]:
        assert f'"#/definitions/{name}"' in text, name


REFUSED = {
    "a misspelt part": ("gatway.replicas=2", "at ''", "'gatway' not allowed"),
    "a misspelt value": ("gateway.replica=2", "/gateway'", "'replica' not allowed"),
    "a misspelt value deep inside": ("postgres.storage.class=x", "/postgres/storage'", "'class' not allowed"),
    "a word that isn't one of the allowed": ("gateway.auth=nokey", "/gateway/auth", "'api-key', 'none'"),
    "a kind of Service there isn't": ("gateway.service.type=External", "/gateway/service/type", "'LoadBalancer'"),
    "a pull policy there isn't": ("images.pullPolicy=Sometimes", "/images/pullPolicy", "'IfNotPresent'"),
    "a number out of range": ("gateway.replicas=0", "/gateway/replicas", "minimum"),
    "a port out of range": ("gateway.service.port=70000", "/gateway/service/port", "maximum"),
    "text for a number": ("postgres.maxConnections=many", "/postgres/maxConnections", "want integer"),
    "a fraction of a pod": ("gateway.replicas=1.5", "/gateway/replicas", "want integer"),
    "a wrong type": ("crds.keep=maybe", "/crds/keep", "want boolean"),
    "a list for an object": ("gateway.service={a}", "/gateway/service", "want object"),
    "an object for a list": ("operator.tolerations.key=x", "/operator/tolerations", "want array"),
    "an annotation that isn't text": ("jobs.podAnnotations.a=true", "/jobs/podAnnotations/a", "want string"),
    "a namespace with capitals": ("namespaces.agents=Mine", "/namespaces/agents", "pattern"),
    "a size that is no quantity": ("postgres.storage.size=big", "/postgres/storage/size", "pattern"),
    "memory that is no quantity": ("gateway.resources.limits.memory=1GB", "/gateway/resources/limits/memory", "patt"),
    "a request that isn't in requests": ("gateway.resources.cpu=1", "/gateway/resources'", "'cpu' not allowed"),
    "a role prefix that needs quoting": ("database.rolePrefix=a-b", "/database/rolePrefix", "pattern"),
    "a database that is no PostgreSQL": ("database.external.url=mysql://h/d", "/database/external/url", "pattern"),
    "a pull secret without a name": ("images.pullSecrets[0].secret=x", "/images/pullSecrets/0", "'name'"),
    "a toleration that is none": ("operator.tolerations[0].effect=Go", "/operator/tolerations/0/effect", "'NoExecute'"),
    "an affinity that is none": ("jobs.affinity.nodes=x", "/jobs/affinity'", "'nodes' not allowed"),
    "an affinity wrong deep inside": (
        "gateway.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topology=zone",
        "/gateway/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0",
        "'topologyKey'",
    ),
    "an address range that is none": (
        "networkPolicies.agents.except={10.0.0.0}",
        "/networkPolicies/agents/",
        "pattern",
    ),
    "a peer that is none": ("networkPolicies.gateway.from[0].cidr=10.0.0.0/8", "/from/0'", "'cidr' not allowed"),
    "a port that is a name": ("networkPolicies.dns.ports={dns}", "/networkPolicies/dns/ports/0", "want integer"),
    "no external database": ("postgres.enabled=false", "database.external.secretName", "is needed"),
    "two external databases": (
        "database.external.secretName=a,database.external.url=postgresql://o:p@h/d",
        "database.external.secretName and database.external.url",
        "one of them",
    ),
    "scraping by nobody": ("metrics.podMonitors.enabled=true", "networkPolicies.metrics.from", "is needed"),
    "one namespace for two purposes": ("namespaces.agents=runyard", "namespaces.agents", "must differ"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, case: str) -> None:
    setting, path, reason = REFUSED[case]
    said = helm.refusal("--set", setting)
    assert path in said
    assert reason in said


def test_all_that_is_wrong_with_a_file_is_said_at_once(helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("gateway: {replicas: none, auth: open}\ncrds: {keep: 1}\nmonitoring: {}\n")
    said = helm.refusal("--values", str(file))
    for path in ("/gateway/replicas", "/gateway/auth", "/crds/keep", "'monitoring'"):
        assert path in said


def test_a_release_name_that_makes_too_long_names_is_refused(helm: Helm) -> None:
    assert "40 characters" in helm.refusal(release="r" * 41)


def test_helm_lint_finds_nothing(helm: Helm) -> None:
    for values in ([], ["--values", str(EVERYTHING)]):
        done = helm.run("lint", "--strict", str(CHART), *values)
        assert done.returncode == 0, done.stdout
        assert "WARNING" not in done.stdout


def test_the_image_tag_is_the_version_of_the_distribution() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    assert f"runyard-runtime:{chart['appVersion']}\n" in Path(ROOT / "images" / "hello" / "Dockerfile").read_text()


def test_the_reference_in_docs_is_that_of_the_schema() -> None:
    check = [sys.executable, str(ROOT / "hack" / "generate_values.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
