"""Which arguments a graph factory gets, and how its context is made."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.store.memory import InMemoryStore
from langgraph_sdk.runtime import ServerRuntime
from pydantic import BaseModel, ConfigDict

from runyard_runtime.factories import coerced_context, enter_graph, factory_of

STORE = InMemoryStore()
CONFIG: RunnableConfig = {"configurable": {"a": 1}}


@dataclasses.dataclass
class Needs:
    model: str


@dataclasses.dataclass
class Has:
    model: str = "default"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str = "default"


def takes_nothing() -> Any:
    return ()


def takes_config(config: RunnableConfig) -> Any:
    return (config,)


def takes_config_by_annotation(c: RunnableConfig | None = None) -> Any:
    return (c,)


def takes_one_of_any_name(anything):  # type: ignore[no-untyped-def]
    return (anything,)


def takes_runtime(runtime: ServerRuntime[Any]) -> Any:
    return (runtime,)


def takes_typed_runtime(r: ServerRuntime[Has]) -> Any:
    return (r,)


def takes_both(runtime, config: dict[str, Any]):  # type: ignore[no-untyped-def]
    return (runtime, config)


def has_defaults(config: RunnableConfig, tools: int = 3) -> Any:
    return (config, tools)


async def is_async(config: RunnableConfig) -> Any:
    return (config,)


@contextlib.asynccontextmanager
async def is_async_context(config: RunnableConfig) -> AsyncIterator[Any]:
    yield (config,)


@contextlib.contextmanager
def is_context(config: RunnableConfig) -> Iterator[Any]:
    yield (config,)


async def _made(call: Callable[..., Any]) -> Any:
    factory = factory_of("g", call)
    async with enter_graph(factory, "threads.create_run", config=CONFIG, store=STORE, context={"model": "m"}) as made:
        return made


@pytest.mark.parametrize(
    "call",
    [takes_config, takes_config_by_annotation, takes_one_of_any_name, is_async, is_async_context, is_context],
)
async def test_the_config_reaches_it(call: Callable[..., Any]) -> None:
    assert await _made(call) == (CONFIG,)


async def test_nothing_and_defaults() -> None:
    assert await _made(takes_nothing) == ()
    assert await _made(has_defaults) == (CONFIG, 3)


async def test_the_runtime_carries_store_and_context() -> None:
    (runtime,) = await _made(takes_runtime)
    assert (runtime.access_context, runtime.store) == ("threads.create_run", STORE)
    assert runtime.execution_runtime.context == {"model": "m"}
    (typed,) = await _made(takes_typed_runtime)
    assert typed.execution_runtime.context == Has("m")
    both, config = await _made(takes_both)
    assert (both.store, config) == (STORE, CONFIG)


async def test_a_factory_that_is_only_asked_to_read_gets_no_context() -> None:
    factory = factory_of("g", takes_runtime)
    async with enter_graph(factory, "threads.read", config=CONFIG, store=STORE, context=None) as made:
        assert isinstance(made, tuple)
        assert made[0].execution_runtime is None


@pytest.mark.parametrize(
    ("schema", "context", "want"),
    [
        (None, {"a": 1}, {"a": 1}),
        (None, None, None),
        (Has, {"model": "m", "thread_id": "t"}, Has("m")),
        (Has, None, Has()),
        (Has, {"thread_id": "t"}, Has()),
        (Needs, None, None),
        (Needs, {"model": "m"}, Needs("m")),
        (Strict, {"model": "m", "thread_id": "t"}, Strict(model="m")),
        (Strict, {}, Strict()),
    ],
)
def test_a_context_fits_its_schema(schema: Any, context: dict[str, Any] | None, want: Any) -> None:
    assert coerced_context(schema, context) == want
