"""What a request asks of a graph, held against the graph: LangGraph passes over a node that doesn't exist, and starts
from nothing at a checkpoint that doesn't. Called by `execution.py` and `threads.py` before they use the graph.
"""

from collections.abc import Iterable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from runyard_api.payload import Command, RunPayload, Send
from runyard_runtime.graphs import AnyGraph


class UnknownNode(Exception):
    """The request names a node that the graph doesn't have."""


class UnknownCheckpoint(Exception):
    """The request names a checkpoint that the thread doesn't have."""


def check_nodes(graph: AnyGraph, payload: RunPayload) -> None:
    """Raises UnknownNode for a goto or a breakpoint that could never be met."""
    nodes = sorted(name for name in graph.nodes if not name.startswith("__"))
    named: dict[str, Iterable[str]] = {
        "command.goto": () if payload.command is None else _targets(payload.command),
        "interrupt_before": () if payload.interrupt_before == "*" else payload.interrupt_before or (),
        "interrupt_after": () if payload.interrupt_after == "*" else payload.interrupt_after or (),
    }
    for field, names in named.items():
        for name in names:
            if name not in nodes and not name.startswith("__"):
                raise UnknownNode(f"{field}: the graph has no node {name!r}, only {', '.join(nodes)}")


async def check_checkpoint(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> None:
    """Raises UnknownCheckpoint when the config names a checkpoint that isn't there."""
    configurable = config.get("configurable", {})
    checkpoint_id = configurable.get("checkpoint_id")
    if not checkpoint_id:
        return
    keys = ("thread_id", "checkpoint_id")
    named = {"checkpoint_ns": configurable.get("checkpoint_ns") or "", **{key: configurable[key] for key in keys}}
    if await saver.aget_tuple({"configurable": named}) is None:
        raise UnknownCheckpoint(f"Checkpoint {checkpoint_id} of thread {configurable['thread_id']} not found.")


def _targets(command: Command) -> list[str]:
    goto = command.goto if isinstance(command.goto, list) else [command.goto] if command.goto else []
    return [target.node if isinstance(target, Send) else target for target in goto]
