"""The graph `approval`: nothing is sent before a person has said yes."""

from typing import Any, Literal

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt


class State(MessagesState, total=False):
    """`draft` is the postcard that waits for approval."""

    draft: str


def write(state: State) -> dict[str, Any]:
    """Write a postcard from the last message."""
    return {"draft": f"Dear friend, {state['messages'][-1].text} Yours, Runyard"}


def ask(state: State) -> Command[Literal["send", "__end__"]]:
    """Stop until a person answers: "yes" sends the draft, "no" drops it, any other text replaces it first."""
    reply = str(interrupt({"question": "Send this postcard?", "draft": state["draft"]})).strip()
    if reply.lower() == "no":
        return Command(goto="__end__", update={"messages": [AIMessage("Nothing was sent.")]})
    draft = state["draft"] if reply.lower() == "yes" else reply
    return Command(goto="send", update={"draft": draft})


def send(state: State) -> dict[str, Any]:
    """Send it. (The post office of this example is a message.)"""
    return {"messages": [AIMessage(f"Sent: {state['draft']}")]}


graph = (
    StateGraph(State)
    .add_node("write", write)
    .add_node("ask", ask)
    .add_node("send", send)
    .add_edge(START, "write")
    .add_edge("write", "ask")
    .compile(name="approval")
)
