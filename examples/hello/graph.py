"""The agent `hello`: a model that calls a tool until it can answer."""

from dataclasses import dataclass

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from scripted_model import ScriptedModel


@dataclass
class Context:
    """What a caller may set for a run."""

    seconds_per_token: float = 0.03


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


async def model(state: MessagesState, runtime: Runtime[Context]) -> MessagesState:
    """Ask the model for the next message; it may be an answer or a tool call."""
    context = runtime.context or Context()
    llm = ScriptedModel(seconds_per_token=context.seconds_per_token).bind_tools([multiply])
    return {"messages": [await llm.ainvoke(state["messages"])]}


graph = (
    StateGraph(MessagesState, context_schema=Context)
    .add_node("model", model)
    .add_node("tools", ToolNode([multiply]))
    .add_edge(START, "model")
    .add_conditional_edges("model", tools_condition)
    .add_edge("tools", "model")
    .compile(name="hello")
)
