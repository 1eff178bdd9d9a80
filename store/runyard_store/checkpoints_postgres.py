"""LangGraph's Postgres saver behind the fence, and its store, on one pool. Opened by checkpoints.py.

A put is one statement whose rows come from the fence, and so its own transaction: the fence holds the lease row FOR
SHARE to its end, so the check and the write can't be separated. LangGraph's own puts are pipelines of several
statements, after a walk to another thread. Its other writes go on as they are, with the fence first in their pipeline,
which the server treats as one transaction.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import BaseStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from runyard_api.errors import Fenced, Unavailable
from runyard_store.database import CONNECTION_ARGS, hung_up
from runyard_store.known_head import KnownHead
from runyard_store.urls import DatabaseUrl

Pool = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]

_FENCED_STATE = "RY001"
NO_EPOCH = -1

_PUT = """
WITH fence AS MATERIALIZED (SELECT runyard_fence(%s, %s)), blobs AS (
  INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
  SELECT %s, %s, b.* FROM fence, unnest(%b::text[], %b::text[], %b::text[], %b::bytea[]) b
  ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING
)
INSERT INTO checkpoints (
  thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata
) SELECT %s, %s, %s, %s, %s, %s FROM fence
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata"""

_PUT_WRITES = """
WITH fence AS MATERIALIZED (SELECT runyard_fence(%s, %s))
INSERT INTO checkpoint_writes (
  thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob
) SELECT %s, %s, %s, %s, %s, w.* FROM fence, unnest(%b::int[], %b::text[], %b::text[], %b::bytea[]) w
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) """
_KEEP_WRITES = _PUT_WRITES + "DO NOTHING"
_REPLACE_WRITES = _PUT_WRITES + "DO UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob"


class FencedPostgresSaver(AsyncPostgresSaver):
    """One attempt's saver, or with NO_EPOCH a reader's, whose writes never pass the fence."""

    def __init__(
        self, pool: Pool, *, lease: tuple[str, int], on_fenced: Callable[[], None], known: KnownHead, serde: Any
    ) -> None:
        """`lease`: thread id and epoch."""
        super().__init__(pool, serde=serde)
        self._lease, self._known = lease, known
        self._on_fenced = on_fenced
        self._is_fenced = False

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._known.head if self._known.answers(config) else await super().aget_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._known.putting()
        place = config["configurable"]
        thread_id, namespace = place["thread_id"], place["checkpoint_ns"]
        inline, apart = split_values(checkpoint["channel_values"])
        versions = {name: version for name, version in new_versions.items() if name in apart}
        blobs = [row[2:] for row in self._dump_blobs(thread_id, namespace, apart, versions)]
        row = (
            *(thread_id, namespace, checkpoint["id"], place.get("checkpoint_id")),
            Jsonb({**checkpoint, "channel_values": inline}),
            Jsonb(get_serializable_checkpoint_metadata(config, metadata)),
        )
        await self._put(_PUT, (thread_id, namespace, *_columns(blobs), *row))
        self._known.stored(config, checkpoint, metadata)
        keys = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}
        return {"configurable": keys}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._known.adding_writes(config)
        place = config["configurable"]
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        where = (place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"], task_id, task_path)
        # Rows by index: a statement can't replace one row twice, and the last one counts.
        rows = {row[5]: row[5:] for row in self._dump_writes(*where, writes)}
        await self._put(_REPLACE_WRITES if special else _KEEP_WRITES, (*where, *_columns(list(rows.values()))))

    async def _put(self, statement: str, parameters: tuple[Any, ...]) -> None:
        if self._is_fenced:
            raise self._fenced()
        async with self._cursor() as cursor:
            await cursor.execute(statement, (*self._lease, *parameters))

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[psycopg.AsyncCursor[DictRow]]:
        if pipeline and self._is_fenced:
            raise self._fenced()
        if pipeline:
            self._known.give_up()
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


def split_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A checkpoint's channel values as LangGraph stores them: (in the checkpoint's JSON, as blobs of their own)."""
    inline, apart = {}, {}
    for name, value in values.items():
        if value is None or isinstance(value, str | int | float | bool):
            inline[name] = value
        else:
            apart[name] = value
            if isinstance(value, _DeltaSnapshot):
                inline[name] = True
    return inline, apart


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Four columns for unnest."""
    return [[row[n] for row in rows] for n in range(4)]


class PostgresCheckpointers:
    """Checkpointers (checkpoints.py) on Postgres."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._store = AsyncPostgresStore(pool)
        self._serde = AsyncPostgresSaver(pool).serde

    @property
    def store(self) -> BaseStore:
        return self._store

    def saver(
        self, thread_id: str, epoch: int, on_fenced: Callable[[], None], known: KnownHead | None = None
    ) -> BaseCheckpointSaver[str]:
        known = known or KnownHead(thread_id)
        lease = (thread_id, epoch)
        return FencedPostgresSaver(self._pool, lease=lease, on_fenced=on_fenced, known=known, serde=self._serde)

    def reader(self) -> BaseCheckpointSaver[str]:
        return self.saver("", NO_EPOCH, lambda: None)

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
