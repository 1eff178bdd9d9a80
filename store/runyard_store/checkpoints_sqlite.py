"""LangGraph's sqlite saver with the fence in its write transactions, and its store. Opened by checkpoints.py.

LangGraph's sync classes do the work, on threads of ours: a whole transaction is one call on its thread. With its async
ones a transaction spans several turns of the loop, so a node that blocks the loop would hold the database's only write
lock, and everybody else's writes would wait for it. Savers write on one connection and read on another; state and
history are read on a third, so a caller that pages through a history holds up no run.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.sqlite import SqliteStore

from runyard_api.errors import Fenced, Unavailable
from runyard_store.database import create_private_file, sqlite_pragmas
from runyard_store.known_head import KnownHead
from runyard_store.urls import DatabaseUrl

READ_ONLY = "a reader of state and history writes nothing"
_EPOCH = "SELECT epoch FROM thread_leases WHERE thread_id = ?"
P = ParamSpec("P")
T = TypeVar("T")


class Lane:
    """One connection and its thread; `lock` orders that thread and nodes whose sync subgraphs call directly."""

    def __init__(self, parsed: DatabaseUrl, name: str) -> None:
        self.connection = sqlite3.connect(str(parsed.path), isolation_level=None, check_same_thread=False)
        for pragma in sqlite_pragmas():
            self.connection.execute(pragma)
        self.lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"sqlite-{name}")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls on the lane's thread. Raises Unavailable for sqlite's errors.

        A call that has begun is waited for even when the caller is cancelled: what is read afterwards includes it.
        """
        future = asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except sqlite3.Error as error:
            raise Unavailable(f"the database doesn't answer: {error}") from error
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait([future])
            raise

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self.connection.close()


class LaneSaver(SqliteSaver):
    """LangGraph's sync saver, called from the loop: it reads on one lane and writes on another."""

    def __init__(self, *, reads: Lane, writes: Lane) -> None:
        super().__init__(reads.connection)
        self.is_setup = True
        self.lock = reads.lock
        self._reads, self._writes = reads, writes

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._reads.run(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = await self._reads.run(lambda: list(self.list(config, filter=filter, before=before, limit=limit)))
        for one in found:
            yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._reads.run(self.get_delta_channel_history, config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._writes.run(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._writes.run(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._writes.run(self.delete_thread, thread_id)


class FencedSqliteSaver(LaneSaver):
    """One attempt's saver: each write checks the epoch in its own transaction."""

    def __init__(
        self, *, reads: Lane, writes: Lane, lease: tuple[str, int], on_fenced: Callable[[], None], known: KnownHead
    ) -> None:
        """`lease`: thread id and epoch."""
        super().__init__(reads=reads, writes=writes)
        (self._thread_id, self._epoch), self._known = lease, known
        self._on_fenced, self._loop = on_fenced, asyncio.get_running_loop()
        self._is_fenced = False

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._known.head if self._known.answers(config) else await super().aget_tuple(config)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._known.putting()
        stored = super().put(config, checkpoint, metadata, new_versions)
        self._known.stored(config, checkpoint, metadata)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._known.adding_writes(config)
        super().put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        self._known.give_up()
        super().delete_thread(thread_id)

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Reads pass; a write begins with the fence and is undone as a whole when anything fails."""
        if not transaction:
            with super().cursor(transaction=False) as cursor:
                yield cursor
            return
        if self._is_fenced:
            raise self._fenced()
        connection = self._writes.connection
        with self._writes.lock:
            cursor = connection.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                held = cursor.execute(_EPOCH, (self._thread_id,)).fetchone()
                if not held or held[0] != self._epoch:
                    raise self._fenced()
                yield cursor
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            finally:
                cursor.close()

    def _fenced(self) -> Fenced:
        """Runs on a lane's thread, or on a node's when a sync subgraph writes."""
        if not self._is_fenced:
            self._is_fenced = True
            self._loop.call_soon_threadsafe(self._on_fenced)
        return Fenced(f"the lease of thread {self._thread_id} was taken by another writer")


class ReadingSqliteSaver(LaneSaver):
    """A saver that reads and never writes."""

    def __init__(self, lane: Lane) -> None:
        super().__init__(reads=lane, writes=lane)

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        if transaction:
            raise Fenced(READ_ONLY)
        with super().cursor(transaction=False) as cursor:
            yield cursor


class LaneStore(SqliteStore):
    """LangGraph's sync store on a lane of its own.

    Its transactions take the write lock first: one that reads before it writes would be refused while others write.
    """

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane.connection)
        self.is_setup = True
        self._lane = lane

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self._lane.run(self.batch, list(ops))

    @contextmanager
    def _cursor(self, *, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        with self._lane.lock:
            cursor = self.conn.cursor()
            try:
                if transaction:
                    cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                if transaction:
                    self.conn.commit()
            except BaseException:
                self.conn.rollback()
                raise
            finally:
                cursor.close()


class SqliteCheckpointers:
    """Checkpointers (checkpoints.py) on sqlite: four lanes."""

    def __init__(self, parsed: DatabaseUrl) -> None:
        self._reads, self._writes, history, store = self._lanes = [
            Lane(parsed, name) for name in ("reads", "writes", "history", "store")
        ]
        self._reader = ReadingSqliteSaver(history)
        self._store = LaneStore(store)

    @property
    def store(self) -> BaseStore:
        return self._store

    def saver(
        self, thread_id: str, epoch: int, on_fenced: Callable[[], None], known: KnownHead | None = None
    ) -> BaseCheckpointSaver[str]:
        known = known or KnownHead(thread_id)
        lease = (thread_id, epoch)
        return FencedSqliteSaver(reads=self._reads, writes=self._writes, lease=lease, on_fenced=on_fenced, known=known)

    def reader(self) -> BaseCheckpointSaver[str]:
        return self._reader

    async def close(self) -> None:
        for lane in self._lanes:
            lane.close()


async def open_sqlite(parsed: DatabaseUrl) -> SqliteCheckpointers:
    """Opens the connections. Raises Unavailable when the file can't be opened."""
    create_private_file(parsed)
    try:
        return SqliteCheckpointers(parsed)
    except sqlite3.Error as error:
        raise Unavailable(f"the database file {parsed.path} can't be opened: {error}") from error
