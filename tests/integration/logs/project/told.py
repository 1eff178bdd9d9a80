"""Graphs that handle what must stay out of logs: an input, and a model's key from the environment."""

import asyncio
import os
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class State(TypedDict, total=False):
    text: str
    answer: str


async def _say(state: State) -> State:
    return {"answer": f"{state['text']} with {os.environ['MODEL_KEY']}"}


async def _ask(state: State) -> State:
    return {"answer": interrupt({"question": state["text"]})}


async def _fail(state: State) -> State:
    try:
        raise KeyError(os.environ["MODEL_KEY"])
    except KeyError as error:
        raise ValueError(f"can't answer {state['text']}") from error


async def _loiter(state: State) -> State:
    asyncio.get_running_loop().create_task(_fail(state))  # its error is told by asyncio, when nobody else asks
    await asyncio.sleep(60)
    return {}


def _graph(node: Any) -> Any:
    return StateGraph(State).add_node("work", node).add_edge(START, "work").add_edge("work", END).compile()


told, asking, failing, slow = _graph(_say), _graph(_ask), _graph(_fail), _graph(_loiter)
