"""LangGraph's savers and store behind the thread lease, on connections of their own. Opened by the runtime.

The packages of the savers are pinned exactly: the fence uses their private cursors (checkpoints_postgres.py,
checkpoints_sqlite.py).
"""

from collections.abc import Callable
from typing import Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from runyard_store.database import POOL_TIMEOUT_S
from runyard_store.known_head import KnownHead
from runyard_store.urls import parse_url


class Checkpointers(Protocol):
    """Savers of one process; made and used on the loop that runs the graphs."""

    @property
    def store(self) -> BaseStore:
        """LangGraph's long-term store; not fenced, it belongs to no thread."""

    def saver(
        self, thread_id: str, epoch: int, on_fenced: Callable[[], None], known: KnownHead | None = None
    ) -> BaseCheckpointSaver[str]:
        """A saver for one attempt: its writes raise Fenced once the lease has another epoch, and change nothing.

        `on_fenced` is called once, on the graph loop: cancel the run's task there, for a raising saver alone doesn't
        stop a graph. A database that doesn't answer is Unavailable. `known` spares it reads; None: nothing is known.
        """

    def reader(self) -> BaseCheckpointSaver[str]:
        """A saver for reading state and history; every write raises Fenced."""

    async def close(self) -> None:
        """Closes connections; savers made here are dead after that."""


async def open_checkpointers(url: str, pool_size: int = 10, timeout_s: float = POOL_TIMEOUT_S) -> Checkpointers:
    """Opens savers and store at `url` on the running loop, the graphs' one, with at most `pool_size` connections.

    An operation waits `timeout_s` for one of them; after that the database counts as away. On sqlite neither is used.

    A Postgres that is down is an error at the first use only. Raises ValueError, Unavailable.
    """
    parsed = parse_url(url)
    if parsed.kind == "sqlite":
        from runyard_store.checkpoints_sqlite import open_sqlite

        return await open_sqlite(parsed)
    from runyard_store.checkpoints_postgres import open_postgres

    return await open_postgres(parsed, pool_size, timeout_s)
