"""Turns the models of Agent and Run into CustomResourceDefinitions. Called by hack/generate_crds.py and by tests. Pure.

pydantic's JSON schema differs from the structural schema that the API server takes: references, titles, `anyOf` for
optional fields, `default: null`. One pass over it removes these, and refuses whatever it has no rule for, so that a new
kind of field is a failure here rather than a schema that checks nothing.
"""

from collections.abc import Callable
from typing import Any

from runyard_api.agent import AGENT
from runyard_api.crd import CATEGORY, Column, KindDefinition, Manifest, rule
from runyard_api.names import GROUP, VERSION
from runyard_api.run import RUN

KINDS = (AGENT, RUN)
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
INT32_LIMIT = 2**31

_KEPT = (
    "description", "type", "format", "nullable", "default", "enum", "pattern", "minimum", "maximum", "minLength",
    "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "required",
)  # fmt: skip
"""The keywords taken over as they are, in the order in which they are written."""


def custom_resource_definition(definition: KindDefinition) -> Manifest:
    """The CustomResourceDefinition of one kind, ready to be applied."""
    singular = definition.kind.lower()
    version: Manifest = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(c) for c in definition.columns],
        "selectableFields": [{"jsonPath": path} for path in definition.selectable],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _object_schema(definition)},
    }
    if not definition.selectable:
        del version["selectableFields"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": singular,
                "shortNames": [definition.short_name],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }


def _column(column: Column) -> Manifest:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.description}
    return shown | ({"priority": 1} if column.wide else {})


def _object_schema(definition: KindDefinition) -> Manifest:
    """The schema of the whole object. `metadata` is the API server's own and only named here."""
    source = definition.model.model_json_schema(by_alias=True, mode="validation")
    convert = _converter(source.get("$defs", {}))
    spec = convert(source["properties"]["spec"], "spec")
    status = convert(source["properties"]["status"], "status")
    status.pop("default", None)
    if definition.status_default is not None:
        # A create carries no status: the server drops it and then fills this in, so no patch is needed.
        status["default"] = definition.status_default
    if definition.immutable_spec_except is not None:
        spec.setdefault("x-kubernetes-validations", []).extend(_immutability(spec, definition.immutable_spec_except))
    schema: Manifest = {
        "type": "object",
        "description": definition.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": definition.kind},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    if definition.rules:
        schema["x-kubernetes-validations"] = list(definition.rules)
    return schema


def _immutability(spec: Manifest, free: tuple[str, ...]) -> list[Manifest]:
    """One rule per field. CEL can't leave a field out of `self == oldSelf`, and a rule on an optional field doesn't see
    it come or go. User JSON inside an object is invisible to CEL: for such objects the rules see known keys only."""
    made = []
    for name, schema in spec["properties"].items():
        if name in free:
            continue
        same = f"self.{name} == oldSelf.{name}"
        always = name in spec.get("required", ()) or "default" in schema
        held = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        made.append(rule(same if always else held, "can't be changed after creation", at=f".{name}"))
    return made


def _converter(definitions: Manifest) -> Callable[[Manifest, str], Manifest]:
    """Returns the function that converts one node; `path` names the field in failures."""

    def convert(node: Manifest, path: str) -> Manifest:
        node = _merged(node, definitions)
        if INT_OR_STRING in node:
            return _kept(node, path, dropping={"anyOf"})
        if PRESERVE in node:
            return _kept(node, path)
        kind = node.get("type")
        if kind == "object":
            return _object(node, path)
        if kind == "array":
            return _kept(node, path) | {"items": convert(node["items"], f"{path}[]")}
        if kind == "integer":
            return _integer(node, path)
        if kind in ("string", "boolean"):
            return _kept(node, path)
        raise TypeError(f"{path}: no rule to make a structural schema of {node!r}")

    def _object(node: Manifest, path: str) -> Manifest:
        if "properties" in node:
            made = _kept(node, path, dropping={"additionalProperties"})
            made["properties"] = {name: convert(part, f"{path}.{name}") for name, part in node["properties"].items()}
            return made
        values = node.get("additionalProperties")
        if values is True:
            return _kept(node, path, dropping={"additionalProperties"}) | {PRESERVE: True}
        if isinstance(values, dict):
            made = _kept(node, path, dropping={"additionalProperties", "propertyNames"})
            return made | {"additionalProperties": convert(values, f"{path}{{}}")}
        raise TypeError(f"{path}: an object needs properties or a type for its values")

    return convert


def _merged(node: Manifest, definitions: Manifest) -> Manifest:
    """The node with its reference and its optional alternative resolved; what it says itself wins, rules add up."""
    own = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "title")}
    if "default" in own:
        own |= _default(own.pop("default"))
    target: Manifest = {}
    if "$ref" in node:
        target = _merged(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
    elif "anyOf" in node and INT_OR_STRING not in node:
        real = [part for part in node["anyOf"] if part != {"type": "null"}]
        if len(real) != 1:
            raise TypeError(f"a field may have one type, or one and null: {node['anyOf']!r}")
        target = _merged(real[0], definitions)
    validations = [*target.get("x-kubernetes-validations", ()), *own.get("x-kubernetes-validations", ())]
    return target | own | ({"x-kubernetes-validations": validations} if validations else {})


def _default(value: Any) -> Manifest:
    """The default to write; null and empty ones say nothing. An object's parts are spelled out although they have their
    own: the server judges a default by the object's rules before it fills in the parts."""
    if isinstance(value, dict):
        value = {key: part for key, part in value.items() if part is not None}
    return {} if value in (None, "", [], {}) else {"default": value}


def _kept(node: Manifest, path: str, dropping: frozenset[str] | set[str] = frozenset()) -> Manifest:
    """The keywords that a structural schema has. Raises TypeError on one that would silently be lost."""
    structure = {"properties", "items", "title", *dropping}
    extensions = [key for key in node if key.startswith("x-kubernetes-")]
    unknown = node.keys() - structure - {*_KEPT, *extensions}
    if unknown:
        raise TypeError(f"{path}: no rule for the keywords {sorted(unknown)}")
    return {key: _plain(node[key]) for key in (*_KEPT, *extensions) if key in node and key not in structure}


def _integer(node: Manifest, path: str) -> Manifest:
    """Integers with bounds inside 32 bits are int32, others int64; the bounds that only say so are left out."""
    low, high = node.get("minimum"), node.get("exclusiveMaximum", node.get("maximum"))
    small = high is not None and high <= INT32_LIMIT
    made = _kept(node, path, dropping={"exclusiveMaximum"}) | {"format": "int32" if small else "int64"}
    if low == -INT32_LIMIT:
        del made["minimum"]
    return made


def _plain(value: Any) -> Any:
    """Copies, so that two places of the YAML never share a node."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
