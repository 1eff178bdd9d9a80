"""What the public API answers with, in the shapes LangGraph's SDKs read. Built by the gateway."""

from typing import Annotated, Any, NotRequired

from pydantic import TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict


def some_of(view: Any) -> Any:
    """The type of a list of objects with some of a view's fields, as `select` leaves them; for the OpenAPI document."""
    schema = {name: value for name, value in TypeAdapter(view).json_schema().items() if name != "required"}
    return list[Annotated[dict[str, Any], WithJsonSchema(schema)]]


class AssistantView(TypedDict):
    assistant_id: str
    graph_id: str
    name: str
    description: str | None
    config: dict[str, Any]
    context: dict[str, Any]
    metadata: dict[str, Any]
    version: int
    created_at: str
    updated_at: str


class ThreadView(TypedDict):
    """`values` is null before the first run; `interrupts` maps a task's id to what it asks."""

    thread_id: str
    created_at: str
    updated_at: str
    state_updated_at: str | None
    metadata: dict[str, Any]
    config: dict[str, Any]
    status: str
    values: Any
    interrupts: dict[str, Any]
    error: NotRequired[dict[str, Any]]
    extracted: NotRequired[dict[str, Any]]


class ThreadStateView(TypedDict):
    """`checkpoint` is null on a thread that no run has touched."""

    values: Any
    next: list[str]
    tasks: list[dict[str, Any]]
    metadata: dict[str, Any] | None
    created_at: str | None
    checkpoint: dict[str, Any] | None
    parent_checkpoint: dict[str, Any] | None
    interrupts: list[Any]
    checkpoint_id: str | None
    parent_checkpoint_id: str | None


class RunView(TypedDict):
    run_id: str
    thread_id: str
    assistant_id: str
    created_at: str
    updated_at: str
    status: str
    metadata: dict[str, Any]
    kwargs: dict[str, Any]
    multitask_strategy: str


class InfoView(TypedDict):
    version: str
    langgraph_py_version: str
    flags: dict[str, bool]
    host: dict[str, Any]
