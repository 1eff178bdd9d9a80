"""Where a resumed attempt has to stop instead of going on. Called by `execution.py`."""

from typing import Any

from langgraph.types import StateSnapshot

from runyard_api.payload import Breakpoints, RunPayload
from runyard_runtime.graphs import AnyGraph


async def stopped_at_breakpoint(graph: AnyGraph, head: StateSnapshot, payload: RunPayload) -> bool:
    """Whether a breakpoint applies to the head that a dead attempt left: LangGraph takes a resumed run past it, because
    for it going on with None is how a person passes a breakpoint."""
    if not head.next:
        return False
    before: Any = graph.interrupt_before_nodes if payload.interrupt_before is None else payload.interrupt_before
    after: Any = graph.interrupt_after_nodes if payload.interrupt_after is None else payload.interrupt_after
    if applies(before, head.next):
        return True
    if not after or head.parent_config is None or (head.metadata or {}).get("source") != "loop":
        return False
    return applies(after, (await graph.aget_state(head.parent_config)).next)


def applies(breakpoints: Breakpoints, nodes: tuple[str, ...]) -> bool:
    """Whether a breakpoint names one of these nodes; "*" names all but LangGraph's hidden ones."""
    visible = [node for node in nodes if not node.startswith("__")]
    return bool(visible) if breakpoints == "*" else any(node in breakpoints for node in visible)
