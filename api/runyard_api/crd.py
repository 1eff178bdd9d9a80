"""What the models of our custom resources share: base class, field types, metadata, CEL rules, printer columns.

Used by `agent`, `run` and `conditions`; `crd_schema` turns all of it into CustomResourceDefinitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from runyard_api.errors import Invalid
from runyard_api.names import API_VERSION

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as decoded JSON."""

CATEGORY = "runyard"
DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
UUID_TEXT = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def format_time(moment: datetime) -> str:
    """An aware datetime in the form of Kubernetes times: UTC, whole seconds, `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[AwareDatetime, PlainSerializer(format_time, return_type=str)]
Int32 = Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]
Flag = Annotated[bool, Field(strict=True)]


class CrdModel(BaseModel):
    """Base of every part of a custom resource: camelCase in JSON, unknown fields refused, never changed in place."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    def to_json(self) -> Manifest:
        """The part as decoded JSON in the API's spelling; absent (None) fields are left out, defaults are not."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ObjectMeta(CrdModel):
    """The part of `metadata` that Runyard reads; the rest of what the server sends is dropped."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


class Resource(CrdModel):
    """Base of a whole object as read from the API server. Subclasses add `spec` and `status`."""

    metadata: ObjectMeta

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Reads an object as the API server sends it; fields that this version doesn't know are dropped, so an older
        component survives a newer CRD. Raises Invalid naming the object and the first bad field."""
        try:
            return cls.model_validate(manifest, extra="ignore")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = (manifest.get("metadata") or {}).get("name", "?")
            path = ".".join(str(part) for part in first["loc"])
            raise Invalid(f"{cls.__name__} {name}: {path}: {first['msg']}") from error

    @classmethod
    def identity(cls, *, name: str, namespace: str) -> Manifest:
        """The head of a new object of this kind."""
        return {"apiVersion": API_VERSION, "kind": cls.__name__, "metadata": {"name": name, "namespace": namespace}}


def rule(expression: str, message: str, *, at: str | None = None) -> Manifest:
    """A CEL rule. `message` is what a person reads; `at` is a path like `.threadId` that the refusal names, relative to
    where the rule stands."""
    return {"rule": expression, "message": message} | ({"fieldPath": at} if at else {})


def rules(*given: Manifest) -> dict[str, Any]:
    """CEL rules as `json_schema_extra` of a field or a model."""
    return {"x-kubernetes-validations": list(given)}


def list_map(*keys: str) -> dict[str, Any]:
    """Marks a list as a map keyed by these fields of its items, as `json_schema_extra`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ANY_JSON: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
"""Marks a field as user JSON of any shape. The API server neither prunes nor checks it, and CEL can't see it."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`. `wide`: shown with -o wide alone."""

    name: str
    type: str
    path: str
    description: str
    wide: bool = False


@dataclass(frozen=True)
class KindDefinition:
    """Everything about a kind that its models don't say. `description` opens `kubectl explain`."""

    model: type[Resource]
    plural: str
    short_name: str
    description: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    rules: tuple[Manifest, ...] = ()
    status_default: Manifest | None = None
    immutable_spec_except: tuple[str, ...] | None = None
    """None: the spec may change. Otherwise every other field of the spec keeps what it had at creation."""

    @property
    def kind(self) -> str:
        return self.model.__name__


AGE = Column("Age", "date", ".metadata.creationTimestamp", "Time since the object was created.")
