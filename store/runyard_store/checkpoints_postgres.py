"""LangGraph's Postgres saver with the fence in its cursor, and its store, on one pool. Opened by checkpoints.py.

A writing cursor of the saver is a pipeline, which the server treats as one transaction: the fence goes first in it and
holds the lease row FOR SHARE to its end, so the check and the write can't be separated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.base import BaseStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from runyard_api.errors import Fenced, Unavailable
from runyard_store.database import CONNECTION_ARGS, hung_up
from runyard_store.urls import DatabaseUrl

Pool = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]

_FENCED_STATE = "RY001"
NO_EPOCH = -1


class FencedPostgresSaver(AsyncPostgresSaver):
    """One attempt's saver, or with NO_EPOCH a reader's, whose writes never pass the fence."""

    def __init__(self, pool: Pool, *, thread_id: str, epoch: int, on_fenced: Callable[[], None], serde: Any) -> None:
        super().__init__(pool, serde=serde)
        self._lease = (thread_id, epoch)
        self._on_fenced = on_fenced
        self._is_fenced = False

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[psycopg.AsyncCursor[DictRow]]:
        if pipeline and self._is_fenced:
            raise self._fenced()
        try:
            async with super()._cursor(pipeline=pipeline) as cursor:
                if pipeline:
                    await cursor.execute("SELECT runyard_fence(%s, %s)", self._lease)
                yield cursor
        except (psycopg.Error, PoolTimeout) as error:
            if getattr(error, "sqlstate", None) == _FENCED_STATE:
                raise self._fenced() from error
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | PoolTimeout):
                raise Unavailable(f"the database doesn't answer: {str(error).strip().splitlines()[0]}") from error
            raise

    def _fenced(self) -> Fenced:
        if not self._is_fenced:
            self._is_fenced = True
            self._on_fenced()
        return Fenced(f"the lease of thread {self._lease[0]} was taken by another writer")


class PostgresCheckpointers:
    """Checkpointers (checkpoints.py) on Postgres."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._store = AsyncPostgresStore(pool)
        self._serde = AsyncPostgresSaver(pool).serde

    @property
    def store(self) -> BaseStore:
        return self._store

    def saver(self, thread_id: str, epoch: int, on_fenced: Callable[[], None]) -> BaseCheckpointSaver[str]:
        return FencedPostgresSaver(self._pool, thread_id=thread_id, epoch=epoch, on_fenced=on_fenced, serde=self._serde)

    def reader(self) -> BaseCheckpointSaver[str]:
        return FencedPostgresSaver(self._pool, thread_id="", epoch=NO_EPOCH, on_fenced=lambda: None, serde=self._serde)

    async def close(self) -> None:
        await _stop_batching(self._store)
        await self._pool.close()


async def open_postgres(parsed: DatabaseUrl, pool_size: int, timeout_s: float) -> PostgresCheckpointers:
    """Opens the pool; connections are made in the background."""
    assert parsed.conninfo is not None
    pool: Pool = AsyncConnectionPool(
        parsed.conninfo,
        kwargs={**CONNECTION_ARGS, "autocommit": True, "row_factory": dict_row},
        min_size=1,
        max_size=pool_size,
        timeout=timeout_s,
        check=_check,
        open=False,
    )
    await pool.open(wait=False)
    return PostgresCheckpointers(pool)


async def _check(connection: psycopg.AsyncConnection[DictRow]) -> None:
    """Before a connection is handed out; it is closed here, or the pool would take it for a good one and try again."""
    if hung_up(connection.fileno()):
        await connection.close()
        raise psycopg.OperationalError("the server closed this connection")


async def _stop_batching(store: AsyncPostgresStore) -> None:
    """Ends the task in which LangGraph's async store gathers its operations; it has no method for it."""
    task: asyncio.Task[None] | None = getattr(store, "_task", None)
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
