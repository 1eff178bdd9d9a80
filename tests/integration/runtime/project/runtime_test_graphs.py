"""Graphs that show what the runtime has to handle. An ordinary LangGraph project: nothing of Runyard in it."""

import asyncio
import contextlib
import operator
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from langgraph_sdk.runtime import ServerRuntime


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    gate: str


def _model() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(" ".join(["tok"] * 10))]))


async def _answer(state: State) -> State:
    return {"messages": [await _model().ainvoke(state["messages"])]}


chat = StateGraph(State).add_node("answer", _answer).add_edge(START, "answer").compile()


def _say(word: str) -> Any:
    async def node(state: State) -> State:
        return {"log": [word]}

    return node


# Left uncompiled: the runtime compiles builders.
steps = StateGraph(State)
for _name in ("a", "b", "c"):
    steps.add_node(_name, _say(_name))
steps.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", END)


async def _ask(state: State) -> State:
    first = interrupt("first question")
    second = interrupt("second question")
    return {"log": [f"{first},{second}"]}


ask = StateGraph(State).add_node("ask", _ask).add_edge(START, "ask").compile()

_inner = StateGraph(State).add_node("inner", _answer).add_edge(START, "inner").compile()
nested = (
    StateGraph(State)
    .add_node("sub", _inner)
    .add_node("z", _say("z"))
    .add_edge(START, "sub")
    .add_edge("sub", "z")
    .compile()
)


async def _sleep(state: State) -> State:
    await asyncio.sleep(60)
    return {}


sleeper = (
    StateGraph(State)
    .add_node("a", _say("a"))
    .add_node("sleep", _sleep)
    .add_edge(START, "a")
    .add_edge("a", "sleep")
    .compile()
)


def _sync_sleep(state: State) -> State:
    get_stream_writer()("begun")
    time.sleep(0.5)
    return {"log": ["slept"]}


sync_sleeper = StateGraph(State).add_node("sleep", _sync_sleep).add_edge(START, "sleep").compile()


async def _block(state: State) -> State:
    time.sleep(1.2)  # noqa: ASYNC251  # on the loop, on purpose
    return {"log": ["blocked"]}


blocker = StateGraph(State).add_node("block", _block).add_edge(START, "block").compile()


async def _fail(state: State) -> State:
    raise ValueError("no such thing")


failing = StateGraph(State).add_node("a", _say("a")).add_node("fail", _fail)
failing.add_edge(START, "a").add_edge("a", "fail")

looping = StateGraph(State).add_node("again", _say("x")).add_edge(START, "again").add_edge("again", "again").compile()


async def _write(state: State) -> State:
    writer = get_stream_writer()
    writer({"progress": 1})
    writer({"progress": 2})
    return {"log": ["done"]}


custom = StateGraph(State).add_node("write", _write).add_edge(START, "write").compile()


@dataclass
class Context:
    model: str = "default"


async def _see(state: State, config: RunnableConfig, runtime: Runtime[Context]) -> State:
    seen = config["configurable"]
    return {"log": [runtime.context.model, seen["thread_id"], seen["user_id"], str(seen.get("__secret"))]}


context_graph = (
    StateGraph(State, context_schema=Context).add_node("see", cast(Any, _see)).add_edge(START, "see").compile()
)


def by_config(config: RunnableConfig) -> StateGraph[State]:
    word = config["configurable"].get("word", "none")
    return StateGraph(State).add_node("say", _say(word)).add_edge(START, "say")


@contextlib.asynccontextmanager
async def by_runtime(runtime: ServerRuntime[Context]) -> AsyncIterator[Any]:
    executing = runtime.execution_runtime
    word = f"{runtime.access_context}:{executing.context.model if executing else 'reading'}"
    yield StateGraph(State).add_node("say", _say(word)).add_edge(START, "say").compile()


def _opened(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.02)


async def _wait_at_gate(state: State) -> State:
    await asyncio.to_thread(_opened, Path(state["gate"]))
    return {"log": ["through"]}


gated = StateGraph(State).add_node("a", _say("a")).add_node("gate", _wait_at_gate).add_node("z", _say("z"))
gated.add_edge(START, "a").add_edge("a", "gate").add_edge("gate", "z")


async def _flood(state: State) -> State:
    writer = get_stream_writer()
    for number in range(3000):
        writer({"number": number, "text": "x" * 3000})
        if number % 100 == 0:
            await asyncio.sleep(0)
    return {"log": ["flooded"]}


flood = StateGraph(State).add_node("flood", _flood).add_edge(START, "flood").compile()
