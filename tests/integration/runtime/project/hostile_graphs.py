"""Graphs that do what no graph should: the runtime must end their runs with the error's class and go on."""

import asyncio
import contextlib
import operator
from typing import Annotated, Any, TypedDict

from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


async def _raise_base(state: State) -> State:
    raise BaseException("not an Exception")


async def _exit(state: State) -> State:
    raise SystemExit(3)


def _exit_sync(state: State) -> State:
    raise KeyboardInterrupt


async def _cancel_itself(state: State) -> State:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return {}


async def _stop_loop(state: State) -> State:
    asyncio.get_running_loop().stop()
    return {"log": ["stopped"]}


class _Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def _unsayable(state: State) -> State:
    raise _Unsayable


async def _half_a_character(state: State) -> State:
    raise ValueError("a\ud800b\x00c")


async def _swallow(state: State) -> State:
    get_stream_writer()("deaf")
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)
    return {"log": ["swallowed"]}


async def _say(state: State) -> State:
    return {"log": ["went on"]}


def _asks(question: str) -> Any:
    async def node(state: State) -> State:
        return {"log": [interrupt(question)]}

    return node


def _one(node: Any) -> Any:
    return StateGraph(State).add_node("only", node).add_edge(START, "only").compile()


def _two(first: Any, second: Any) -> Any:
    """Two nodes of one step: each is a task of its own on the graph loop."""
    graph = StateGraph(State).add_node("a", first).add_node("b", second)
    return graph.add_edge(START, "a").add_edge(START, "b").compile()


base_exception = _one(_raise_base)
system_exit = _one(_exit)
exit_in_parallel = _two(_exit, _stop_loop)
interrupt_in_thread = _one(_exit_sync)
cancels_itself = _one(_cancel_itself)
stops_loop = _one(_stop_loop)
unsayable = _one(_unsayable)
half_a_character = _one(_half_a_character)
swallows_cancel = StateGraph(State).add_node("swallow", _swallow).add_node("say", _say)
swallows_cancel.add_edge(START, "swallow").add_edge("swallow", "say")
asks_twice = _two(_asks("a?"), _asks("b?"))
