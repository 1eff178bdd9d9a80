"""LangGraph's savers and store behind the thread lease, on connections of their own. Opened by the runtime."""

from collections.abc import Callable
from typing import Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore


class Checkpointers(Protocol):
    """Savers of one process; made and used on the loop that runs the graphs."""

    @property
    def store(self) -> BaseStore:
        """LangGraph's long-term store; not fenced, it belongs to no thread."""

    def saver(self, thread_id: str, epoch: int, on_fenced: Callable[[], None]) -> BaseCheckpointSaver[str]:
        """A saver for one attempt: its writes are refused with Fenced once the lease has another epoch.

        `on_fenced` is called once, on the graph loop: cancel the run's task there, for a raising saver alone doesn't
        stop a graph.
        """

    def reader(self) -> BaseCheckpointSaver[str]:
        """A saver for reading state and history; it writes nothing."""

    async def close(self) -> None:
        """Closes connections; savers made here are dead after that."""


async def open_checkpointers(url: str, pool_size: int = 10) -> Checkpointers:
    """Opens savers and store at `url` on the running loop, the graphs' one. Raises ValueError, Unavailable."""
    raise NotImplementedError
