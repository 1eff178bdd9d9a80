"""The schemas are structural and say what each field means; what the generator doesn't know it refuses."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import Field

from runyard_api.crd import CrdModel, KindDefinition, Manifest, Resource
from runyard_api.crd_schema import KINDS, custom_resource_definition

FORBIDDEN = {
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "title",
    "propertyNames",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "const",
}


def _version(definition: KindDefinition) -> Manifest:
    version: Manifest = custom_resource_definition(definition)["spec"]["versions"][0]
    return version


def _schemas(node: Manifest, path: str = "") -> Iterator[tuple[str, Manifest]]:
    """Every schema in a schema, with its dotted path."""
    yield path, node
    for name, part in node.get("properties", {}).items():
        yield from _schemas(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _schemas(node[key], f"{path}.{key}")


ALL = [
    (f"{kind.kind}{path}", node)
    for kind in KINDS
    for path, node in _schemas(_version(kind)["schema"]["openAPIV3Schema"])
]


@pytest.mark.parametrize(("path", "node"), ALL, ids=[path for path, _ in ALL])
def test_every_schema_is_structural(path: str, node: Manifest) -> None:
    assert not FORBIDDEN & node.keys()
    assert node.get("default", "") is not None
    free = node.get("x-kubernetes-preserve-unknown-fields") or node.get("x-kubernetes-int-or-string")
    assert "type" in node or free
    if node.get("type") == "integer":
        assert node["format"] in ("int32", "int64")
    if node.get("type") == "object" and "properties" not in node and not path.endswith(".metadata"):
        assert free or "additionalProperties" in node


@pytest.mark.parametrize(("path", "node"), ALL, ids=[path for path, _ in ALL])
def test_every_field_is_described(path: str, node: Manifest) -> None:
    value_of_a_list_or_map = path.endswith((".items", ".additionalProperties"))
    assert value_of_a_list_or_map or path.endswith(".metadata") or node.get("description")


def test_only_user_json_is_left_unchecked() -> None:
    unchecked = {path for path, node in ALL if node.get("x-kubernetes-preserve-unknown-fields")}
    payload = "Run.spec.payload"
    assert unchecked == {
        *(f"{payload}.{name}" for name in ("input", "config", "context", "metadata")),
        *(f"{payload}.command.{name}" for name in ("update", "resume", "goto")),
    }


def test_each_optional_field_says_what_its_absence_means() -> None:
    silent = [
        f"{path}.{name}"
        for path, node in ALL
        if ".spec" in path
        for name, part in node.get("properties", {}).items()
        if name not in node.get("required", ()) and "default" not in part and "Absent: " not in part["description"]
    ]
    assert silent == []


def test_every_rule_says_something_to_a_person() -> None:
    rules = [rule for _, node in ALL for rule in node.get("x-kubernetes-validations", ())]
    assert rules
    assert all(rule["message"] for rule in rules)


def test_each_field_of_a_run_but_cancel_is_immutable() -> None:
    spec = dict(ALL)["Run.spec"]
    held = {rule["fieldPath"] for rule in spec["x-kubernetes-validations"] if "can't be changed" in rule["message"]}
    assert held == {f".{name}" for name in spec["properties"]} - {".cancel"}


def test_conditions_and_pods_are_maps_by_their_key() -> None:
    schemas = dict(ALL)
    for path, key in (
        ("Run.status.conditions", "type"),
        ("Agent.status.conditions", "type"),
        ("Agent.status.pods", "name"),
    ):
        assert schemas[path]["x-kubernetes-list-type"] == "map"
        assert schemas[path]["x-kubernetes-list-map-keys"] == [key]


def test_a_new_run_is_pending_by_the_default_of_its_status() -> None:
    assert dict(ALL)["Run.status"]["default"] == {"state": "pending"}
    assert "default" not in dict(ALL)["Agent.status"]


class _Unions(CrdModel):
    odd: int | str = Field(description="x")


class _Anything(CrdModel):
    odd: Any = Field(description="x")


class _Floats(CrdModel):
    odd: float = Field(description="x")


class _Multiples(CrdModel):
    odd: int = Field(description="x", multiple_of=2)


def _definition(spec: type[CrdModel]) -> KindDefinition:
    odd = type("Odd", (Resource,), {"__annotations__": {"spec": spec, "status": spec}, "__module__": __name__})
    return KindDefinition(model=odd, plural="odds", short_name="o", description="x", columns=())


@pytest.mark.parametrize("spec", [_Unions, _Anything, _Floats, _Multiples], ids=lambda model: model.__name__)
def test_a_field_that_would_go_unchecked_is_refused(spec: type[CrdModel]) -> None:
    with pytest.raises(TypeError):
        custom_resource_definition(_definition(spec))
