"""LangGraph's sqlite saver with the fence in its write transactions, and its store. Opened by checkpoints.py.

All savers of the process write on one connection, whose transactions queue at one lock, and read on another. State and
history are read on a third: LangGraph's saver holds its lock while a caller pages through a history.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.base import BaseStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from runyard_api.errors import Fenced, Unavailable
from runyard_store.checkpoints import stop_batching
from runyard_store.database import create_private_file, sqlite_pragmas
from runyard_store.urls import DatabaseUrl

READ_ONLY = "a reader of state and history writes nothing"
_EPOCH = "SELECT epoch FROM thread_leases WHERE thread_id = ?"


@dataclass(frozen=True)
class _Writer:
    """The one connection that savers write on; `lock` is held for a whole transaction."""

    connection: aiosqlite.Connection
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class FencedSqliteSaver(AsyncSqliteSaver):
    """One attempt's saver: LangGraph's own writes inside a transaction that has checked the epoch."""

    def __init__(
        self,
        writer: _Writer,
        reads: AsyncSqliteSaver,
        *,
        thread_id: str,
        epoch: int,
        on_fenced: Callable[[], None],
    ) -> None:
        super().__init__(writer.connection, serde=reads.serde)
        self.is_setup = True
        self._writer, self._reads = writer, reads
        self._thread_id, self._epoch = thread_id, epoch
        self._on_fenced = on_fenced
        self._is_fenced = False

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._fence():
            return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        async with self._fence():
            await super().aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        async with self._fence():
            await super().adelete_thread(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        try:
            return await self._reads.aget_tuple(config)
        except sqlite3.OperationalError as error:
            raise Unavailable(f"the database doesn't answer: {error}") from error

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self._reads.alist(config, filter=filter, before=before, limit=limit):
            yield found

    @asynccontextmanager
    async def _fence(self) -> AsyncIterator[None]:
        """A transaction around a write of LangGraph's saver, which commits it itself."""
        if self._is_fenced:
            raise self._fenced()
        connection = self._writer.connection
        async with self._writer.lock:
            try:
                await connection.execute_fetchall("BEGIN IMMEDIATE")
                rows = list(await connection.execute_fetchall(_EPOCH, (self._thread_id,)))
                if not rows or rows[0][0] != self._epoch:
                    raise self._fenced()
                yield
            except BaseException as error:
                # Also when cancelled: the connection's thread may still be about to begin, and does this after it.
                await connection.rollback()
                if isinstance(error, sqlite3.OperationalError):
                    raise Unavailable(f"the database doesn't answer: {error}") from error
                raise

    def _fenced(self) -> Fenced:
        if not self._is_fenced:
            self._is_fenced = True
            self._on_fenced()
        return Fenced(f"the lease of thread {self._thread_id} was taken by another writer")


class ReadingSqliteSaver(AsyncSqliteSaver):
    """A saver that reads and never writes."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        super().__init__(connection)
        self.is_setup = True

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        raise Fenced(READ_ONLY)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        raise Fenced(READ_ONLY)

    async def adelete_thread(self, thread_id: str) -> None:
        raise Fenced(READ_ONLY)


class PatientSqliteStore(AsyncSqliteStore):
    """LangGraph's store, but its transactions take the write lock first and roll back when they fail: one that reads
    before it writes would be refused at once while others write."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        super().__init__(connection)
        self.is_setup = True

    @asynccontextmanager
    async def _cursor(self, *, transaction: bool = True) -> AsyncIterator[aiosqlite.Cursor]:
        async with self.lock, self.conn.cursor() as cursor:
            if not transaction:
                yield cursor
                return
            try:
                await self.conn.execute_fetchall("BEGIN IMMEDIATE")
                yield cursor
                await self.conn.commit()
            except BaseException:
                await self.conn.rollback()
                raise


class SqliteCheckpointers:
    """Checkpointers (checkpoints.py) on sqlite: four connections."""

    def __init__(self, connections: Sequence[aiosqlite.Connection]) -> None:
        self._connections = connections
        writer, reads, history, store = connections
        self._writer = _Writer(writer)
        self._reads = ReadingSqliteSaver(reads)
        self._history = ReadingSqliteSaver(history)
        self._store = PatientSqliteStore(store)

    @property
    def store(self) -> BaseStore:
        return self._store

    def saver(self, thread_id: str, epoch: int, on_fenced: Callable[[], None]) -> BaseCheckpointSaver[str]:
        return FencedSqliteSaver(self._writer, self._reads, thread_id=thread_id, epoch=epoch, on_fenced=on_fenced)

    def reader(self) -> BaseCheckpointSaver[str]:
        return self._history

    async def close(self) -> None:
        await stop_batching(self._store)
        for connection in self._connections:
            await connection.close()


async def open_sqlite(parsed: DatabaseUrl) -> SqliteCheckpointers:
    """Opens the connections. Raises Unavailable when the file can't be opened."""
    create_private_file(parsed)
    return SqliteCheckpointers([await _connect(parsed) for _ in range(4)])


async def _connect(parsed: DatabaseUrl) -> aiosqlite.Connection:
    try:
        connection = await aiosqlite.connect(str(parsed.path), isolation_level=None)
        for pragma in sqlite_pragmas():
            await connection.execute_fetchall(pragma)
    except sqlite3.Error as error:
        raise Unavailable(f"the database file {parsed.path} can't be opened: {error}") from error
    return connection
