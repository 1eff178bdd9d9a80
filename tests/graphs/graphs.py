"""Graphs for the end-to-end tests and the benches: ordinary LangGraph, no key and no network needed.

stub      one node, no model: what the control plane costs
tokens    a fake model that streams 20 tokens: a real graph at its smallest
slow      streams a custom event every 50 ms for `seconds` of its input (5 by default): something to cancel or rejoin
failing   raises ValueError in its second node
nested    a subgraph as a node
steps     `count` steps (5) of 100 ms with a checkpoint after each: something to resume
burst     waits `seconds`, then writes `count` custom events (5) at once: what it costs to relay them
quiet     says nothing for `seconds` (5 by default): a stream that idles
blocking  an async node that blocks its event loop for `seconds`: an author's mistake the server must survive
"""

import asyncio
import operator
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    seconds: float
    count: int


class TwentyTokens(BaseChatModel):
    """Answers with the same 20 tokens, without delay."""

    @property
    def _llm_type(self) -> str:
        return "twenty-tokens"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("tok " * 20))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for _ in range(20):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content="tok "))
            if run_manager:
                await run_manager.on_llm_new_token("tok ", chunk=chunk)
            yield chunk


async def answer(state: Chat) -> Chat:
    return {"messages": [await TwentyTokens().ainvoke(state["messages"])]}


async def echo(state: Log) -> Log:
    return {"log": ["stub"]}


async def tick(state: Log) -> Log:
    write = get_stream_writer()
    end = time.monotonic() + state.get("seconds", 5.0)
    ticks = 0
    while time.monotonic() < end:
        write({"tick": ticks})
        ticks += 1
        await asyncio.sleep(0.05)
    return {"log": [f"ticked {ticks}"]}


async def fail(state: Log) -> Log:
    raise ValueError("the second node always fails")


async def step(state: Log) -> Log:
    await asyncio.sleep(0.1)
    return {"log": [f"step {len(state.get('log', []))}"]}


def more_steps(state: Log) -> str:
    return "step" if len(state["log"]) < state.get("count", 5) else END


async def burst_out(state: Log) -> Log:
    write = get_stream_writer()
    await asyncio.sleep(state.get("seconds", 0.0))
    for number in range(state.get("count", 5)):
        write({"number": number})
        await asyncio.sleep(0)
    return {"log": ["burst"]}


async def say_nothing(state: Log) -> Log:
    await asyncio.sleep(state.get("seconds", 5.0))
    return {"log": ["quiet"]}


async def block(state: Log) -> Log:
    time.sleep(state.get("seconds", 3.0))  # noqa: ASYNC251  the mistake this graph stands for
    return {"log": ["blocked"]}


async def child(state: Log) -> Log:
    get_stream_writer()({"from": "child"})
    return {"log": ["child"]}


stub = StateGraph(Log).add_node("echo", echo).add_edge(START, "echo")
tokens = StateGraph(Chat).add_node("answer", answer).add_edge(START, "answer").compile()
slow = StateGraph(Log).add_node("tick", tick).add_edge(START, "tick").compile()
failing = (
    StateGraph(Log)
    .add_node("echo", echo)
    .add_node("fail", fail)
    .add_edge(START, "echo")
    .add_edge("echo", "fail")
    .compile()
)
steps = (
    StateGraph(Log)
    .add_node("step", step)
    .add_edge(START, "step")
    .add_conditional_edges("step", more_steps, ["step", END])
    .compile()
)
burst = StateGraph(Log).add_node("burst", burst_out).add_edge(START, "burst").compile()
quiet = StateGraph(Log).add_node("quiet", say_nothing).add_edge(START, "quiet").compile()
blocking = StateGraph(Log).add_node("block", block).add_edge(START, "block").compile()
nested = (
    StateGraph(Log)
    .add_node("inner", StateGraph(Log).add_node("child", child).add_edge(START, "child").compile())
    .add_node("echo", echo)
    .add_edge(START, "inner")
    .add_edge("inner", "echo")
    .compile()
)
