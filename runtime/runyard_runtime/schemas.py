"""The JSON schemas of a graph. Called by `threads.py` on the graph loop.

LangGraph's own functions come first. They fail on `typing.TypedDict` before Python 3.12 and on types without a schema;
then each field is described as well as it can be.
"""

from collections.abc import Callable
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

import structlog
from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from runyard_api.internal import GraphSchemas
from runyard_runtime.graphs import AnyGraph

JsonSchema = dict[str, Any]
_UNDESCRIBABLE = (PydanticUserError, TypeError, ValueError, NameError, AttributeError, KeyError, RecursionError)
_log = structlog.get_logger(__name__)


def graph_schemas(graph_id: str, graph: AnyGraph) -> GraphSchemas:
    """All schemas of a graph; None where one can't be made."""
    builder = getattr(graph, "builder", None)
    context = _first(graph.get_context_jsonschema)
    return GraphSchemas(
        graph_id=graph_id,
        input_schema=_first(graph.get_input_jsonschema, lambda: schema_of(builder.input_schema)),  # type: ignore[union-attr]
        output_schema=_first(graph.get_output_jsonschema, lambda: schema_of(builder.output_schema)),  # type: ignore[union-attr]
        state_schema=_first(lambda: schema_of(builder.state_schema), graph.get_output_jsonschema),  # type: ignore[union-attr]
        config_schema=context,
        context_schema=context or _first(lambda: schema_of(graph.context_schema)),
    )


def schema_of(declared: Any) -> JsonSchema | None:
    """The schema of a TypedDict, dataclass, model or other type; fields that have none accept anything."""
    if declared is None:
        return None
    try:
        return TypeAdapter(declared).json_schema()
    except _UNDESCRIBABLE:
        return _by_fields(declared)


def _by_fields(declared: Any) -> JsonSchema:
    required: frozenset[str] = (
        getattr(declared, "__required_keys__", frozenset()) if is_typeddict(declared) else frozenset()
    )
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(declared, include_extras=True).items():
        if not name.startswith("_"):
            bare = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
            fields[name] = (_describable(bare), ... if name in required else None)
    model: type[BaseModel] = create_model(declared.__name__, **fields)
    return model.model_json_schema()


def _describable(hint: Any) -> Any:
    try:
        TypeAdapter(hint).json_schema()
    except _UNDESCRIBABLE:
        return Any
    return hint


def _first(*makers: Callable[[], JsonSchema | None]) -> JsonSchema | None:
    """The first schema that can be made."""
    for make in makers:
        try:
            if schema := make():
                return schema
        except _UNDESCRIBABLE as error:
            _log.debug("no schema", error=type(error).__name__)
    return None
