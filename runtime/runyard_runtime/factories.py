"""Graph factories: functions that make the graph anew for each use, sync, async or as a context manager.

A factory takes nothing, the config, the server's runtime, or both, told apart by annotation, then by name, as
LangGraph's server documents it. Called by `graphs.py`.
"""

import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore
from langgraph_sdk import runtime as server_runtime
from pydantic import BaseModel

from runyard_runtime.project import ProjectError

Access = Literal["threads.create_run", "threads.update", "threads.read", "assistants.read"]
"""Why a factory is called, in the words its runtime argument carries."""


@dataclass(frozen=True)
class Factory:
    """A factory and its parameters' names: None where it takes no such argument. `context_type` is the X of
    ServerRuntime[X]."""

    graph_id: str
    call: Callable[..., Any]
    config: str | None = None
    runtime: str | None = None
    context_type: Any = None


def factory_of(graph_id: str, call: Callable[..., Any]) -> Factory:
    """Reads a factory's signature. Raises ProjectError ImportFailed for one that needs something else."""
    config = runtime = context_type = None
    for parameter in _parameters(graph_id, call):
        annotation = parameter.annotation
        if runtime is None and _is_runtime(annotation, parameter.name):
            runtime = parameter.name
            context_type = next(iter(get_args(annotation)), None)
        elif config is None and _is_config(annotation, parameter.name):
            config = parameter.name
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            if config is not None or annotation is not parameter.empty:
                raise ProjectError(
                    "ImportFailed",
                    f"the factory of graph {graph_id!r} needs {parameter.name!r}; it may take config and runtime",
                )
            config = parameter.name  # an only argument of any name was the config from the start
    return Factory(graph_id, call, config, runtime, context_type)


@asynccontextmanager
async def enter_graph(
    factory: Factory, access: Access, *, config: RunnableConfig, store: BaseStore, context: dict[str, Any] | None
) -> AsyncIterator[object]:
    """Calls the factory on the running loop and yields what it made; a context manager is left at the end."""
    arguments: dict[str, Any] = {}
    if factory.config:
        arguments[factory.config] = config
    if factory.runtime:
        arguments[factory.runtime] = _server_runtime(factory, access, store, context)
    made = factory.call(**arguments)
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, AbstractAsyncContextManager):
        async with made as graph:
            yield graph
    elif isinstance(made, AbstractContextManager):
        with made as graph:
            yield graph
    else:
        yield made


def coerced_context(schema: Any, context: dict[str, Any] | None) -> Any:
    """Context as a graph's context schema wants it: what a dataclass or model doesn't know is left out (interfaces send
    their own keys along), and a class without required fields is made from nothing. None when there is none to give."""
    if not isinstance(schema, type) or not (dataclasses.is_dataclass(schema) or issubclass(schema, BaseModel)):
        return context or None
    if dataclasses.is_dataclass(schema):
        known = {f.name for f in dataclasses.fields(schema) if f.init}
        kept = {k: v for k, v in (context or {}).items() if k in known}
        return schema(**kept) if kept or context or _needs_nothing(schema) else None
    return schema(**_for_model(schema, context or {})) if context or _needs_nothing(schema) else None


def _for_model(schema: type[BaseModel], context: dict[str, Any]) -> dict[str, Any]:
    if schema.model_config.get("extra") != "forbid":
        return context
    known = set(schema.model_fields) | {f.alias for f in schema.model_fields.values() if f.alias}
    return {k: v for k, v in context.items() if k in known}


def _needs_nothing(schema: type) -> bool:
    if issubclass(schema, BaseModel):
        return not any(f.is_required() for f in schema.model_fields.values())
    missing = dataclasses.MISSING
    fields = dataclasses.fields(schema)  # type: ignore[arg-type]  # the caller has checked that it is a dataclass
    return not any(f.init and f.default is missing and f.default_factory is missing for f in fields)


def _parameters(graph_id: str, call: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        try:
            signature = inspect.signature(call, eval_str=True)
        except (NameError, AttributeError, TypeError, SyntaxError):  # names imported for type checkers only
            signature = inspect.signature(call)
    except (TypeError, ValueError) as error:
        raise ProjectError("ImportFailed", f"the factory of graph {graph_id!r} has no readable signature") from error
    return list(signature.parameters.values())


def _is_runtime(annotation: Any, name: str) -> bool:
    if isinstance(annotation, str):
        return "ServerRuntime" in annotation or (name == "runtime" and "RunnableConfig" not in annotation)
    origin = get_origin(annotation) or annotation
    if origin is server_runtime.ServerRuntime or getattr(origin, "__module__", "") == server_runtime.__name__:
        return True
    return name == "runtime" and annotation is not RunnableConfig


def _is_config(annotation: Any, name: str) -> bool:
    if isinstance(annotation, str):
        return "RunnableConfig" in annotation or name == "config"
    return name == "config" or annotation is RunnableConfig or RunnableConfig in get_args(annotation)


def _server_runtime(factory: Factory, access: Access, store: BaseStore, context: dict[str, Any] | None) -> Any:
    if access != "threads.create_run":
        return server_runtime._ReadRuntime(access_context=access, store=store)
    given = coerced_context(factory.context_type, context)
    return server_runtime._ExecutionRuntime(access_context=access, store=store, context=given)
