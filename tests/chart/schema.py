"""The chart's values schema as tests read it: references followed, each value with its path."""

import json
from collections.abc import Iterator
from typing import Any

from tests.chart.conftest import CHART

Schema = dict[str, Any]
SCHEMA: Schema = json.loads((CHART / "values.schema.json").read_text())


def resolved(schema: Schema) -> Schema:
    """The schema itself, or what its reference names with its own words on top."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].removeprefix("#/definitions/")
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {**resolved(SCHEMA["definitions"][name]), **own}


def described(schema: Schema = SCHEMA, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Each value's path (`.a.b[]`, `.a.*` for a map's entries) and schema, outermost first."""
    schema = resolved(schema)
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from described(inner, f"{path}.{name}")
    if "items" in schema:
        yield from described(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from described(schema["additionalProperties"], f"{path}.*")


def set_one_by_one(schema: Schema = SCHEMA, path: str = "") -> Iterator[str]:
    """Paths of the values that values.yaml holds; Kubernetes' own shapes, maps and lists count as one value."""
    if "$ref" in schema or "properties" not in schema:
        yield path
        return
    for name, inner in schema["properties"].items():
        yield from set_one_by_one(inner, f"{path}.{name}")
