"""Graphs of the agent pods in these tests: one ends at once, one waits for a file to appear, one fails."""

import asyncio
import operator
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    gate: str


async def _say(state: State) -> State:
    return {"log": ["said"]}


async def _wait(state: State) -> State:
    for _ in range(5000):
        if await asyncio.to_thread(Path(state["gate"]).exists):
            break
        await asyncio.sleep(0.02)
    return {"log": ["through"]}


async def _fail(state: State) -> State:
    raise ValueError("no such thing")


echo = StateGraph(State).add_node("say", _say).add_edge(START, "say").add_edge("say", END)
gated = (
    StateGraph(State)
    .add_node("say", _say)
    .add_node("wait", _wait)
    .add_edge(START, "say")
    .add_edge("say", "wait")
    .add_edge("wait", END)
)
failing = StateGraph(State).add_node("fail", _fail).add_edge(START, "fail").add_edge("fail", END)
