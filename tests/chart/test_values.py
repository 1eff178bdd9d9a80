"""The values: all described, wrong ones refused with their path, every one of them used."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.conftest import CHART, EVERYTHING, ROOT, Helm

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def described(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from described(inner, f"{path}.{name}")
    if "items" in schema:
        yield from described(schema["items"], f"{path}[]")


def paths(values: Any, schema: dict[str, Any], path: str = "") -> set[str]:
    """Paths of the values that the schema lists one by one; free maps and lists count as one."""
    if "properties" not in schema or not isinstance(values, dict):
        return {path}
    return {p for name, inner in values.items() for p in paths(inner, schema["properties"][name], f"{path}.{name}")}


def test_every_value_has_a_description_and_every_object_is_closed() -> None:
    for path, schema in described(SCHEMA):
        assert schema.get("description", "").endswith("."), path
        if schema["type"] == "object":
            assert "additionalProperties" in schema, path


def test_values_yaml_holds_every_value_of_the_schema_and_everything_yaml_too() -> None:
    listed = {path for path, schema in described(SCHEMA) if "properties" not in schema and "[]" not in path}
    resources = {path for path in listed if path.endswith((".requests", ".limits"))}
    for file, extra in ((CHART / "values.yaml", {".global"}), (EVERYTHING, set[str]())):
        present = paths(yaml.safe_load(file.read_text()), SCHEMA)
        assert listed - resources - present == extra, file


REFUSED = {
    "a misspelt value": ("gateway.replica=2", "/gateway'", "'replica' not allowed"),
    "a word that isn't one of the allowed": ("gateway.auth=nokey", "/gateway/auth", "'api-key', 'none'"),
    "a number out of range": ("gateway.replicas=0", "/gateway/replicas", "minimum"),
    "a wrong type": ("crds.keep=maybe", "/crds/keep", "want boolean"),
    "a namespace with capitals": ("namespaces.agents=Mine", "/namespaces/agents", "pattern"),
    "a size that is no quantity": ("postgres.storage.size=big", "/postgres/storage/size", "pattern"),
    "a role prefix that needs quoting": ("database.rolePrefix=a-b", "/database/rolePrefix", "pattern"),
    "no external database": ("postgres.enabled=false", "database.external.secretName", "is needed"),
    "one namespace for two purposes": ("namespaces.agents=runyard", "namespaces.agents", "must differ"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, case: str) -> None:
    setting, path, reason = REFUSED[case]
    said = helm.refusal("--set", setting)
    assert path in said
    assert reason in said


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
