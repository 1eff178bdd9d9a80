"""Threads: create, read, and what a state update leaves in the row. Called by gateway and runtime."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, bindparam, case, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import AlreadyExists, Fenced, NotFound
from runyard_api.states import ThreadState
from runyard_store.database import Database
from runyard_store.rows import ThreadRow, thread_row
from runyard_store.tables import thread_leases, threads
from runyard_store.together import Together, bind, of, parameters
from runyard_store.urls import Kind

__all__ = ["ThreadRow", "ThreadUpdate", "create_thread", "get_thread", "record_state"]


@dataclass(frozen=True)
class ThreadUpdate:
    """What a state update leaves in the thread row; `values`, `interrupts` and `head` are JSON values or JSON bytes."""

    values: Any
    interrupts: Any
    head: Any
    status: ThreadState
    now: datetime


async def create_thread(
    db: Database,
    *,
    thread_id: str,
    user_id: str,
    metadata: dict[str, Any],
    config: dict[str, Any] | None = None,
    if_exists: Literal["raise", "do_nothing"] = "raise",
    now: datetime,
) -> ThreadRow:
    """Creates a thread; with do_nothing an existing one of the same user is returned as it is.

    Raises AlreadyExists (also for another user's thread, whatever `if_exists` says), Invalid, Unavailable.
    """
    config = config or {}
    async with db.together() as connection:
        made = await insert_thread(
            db, connection, thread_id=thread_id, user_id=user_id, metadata=metadata, config=config, now=now
        )
    if made:
        return _new_row(thread_id, user_id, metadata, config, now)
    async with db.read() as connection:
        row = await _find(connection, threads.c.thread_id == thread_id)
    if row is not None and if_exists == "do_nothing" and row.user_id == user_id:
        return row
    raise AlreadyExists(f"Thread with ID {thread_id} already exists.")


async def get_thread(db: Database, thread_id: str, user_id: str | None = None) -> ThreadRow:
    """The thread; `user_id` None reads anybody's. Raises NotFound (another user's thread too), Unavailable."""
    mine = threads.c.thread_id == thread_id
    async with db.read() as connection:
        row = await _find(connection, mine if user_id is None else mine & (threads.c.user_id == user_id))
    if row is None:
        raise NotFound(f"Thread with ID {thread_id} not found.")
    return row


async def record_state(db: Database, thread_id: str, epoch: int, change: ThreadUpdate) -> None:
    """Writes what an update of the thread's state left, under the lease of `claim_thread`.

    Raises Fenced, Unavailable.
    """
    async with db.single() as connection:
        result = await connection.execute(
            _RECORD_STATE,
            {
                "of_thread": thread_id,
                "of_epoch": epoch,
                **parameters(
                    threads,
                    values=change.values,
                    interrupts=change.interrupts,
                    head=change.head,
                    status=change.status,
                    error=None,
                    updated_at=change.now,
                    state_updated_at=change.now,
                ),
            },
        )
    if result.rowcount == 0:
        raise Fenced(f"the lease of thread {thread_id} was taken by another writer")


async def insert_thread(
    db: Database,
    connection: AsyncConnection,
    *,
    thread_id: str,
    user_id: str,
    metadata: dict[str, Any],
    config: dict[str, Any],
    now: datetime,
) -> bool:
    """Adds a thread and its lease row inside a transaction; False if the id exists (two creators may race for it)."""
    values = {
        **parameters(
            threads,
            thread_id=thread_id,
            user_id=user_id,
            created_at=now,
            updated_at=now,
            metadata=metadata,
            config=config,
            status=ThreadState.IDLE,
            interrupts={},
            run_seq=0,
            unfinished=0,
        ),
        **parameters(thread_leases, thread_id=thread_id, epoch=first_epoch(), attempt=0, claimed_ms=0, last_base=0),
    }
    made, _ = await _INSERT[db.kind].execute(db.kind, connection, values)
    return made == 1


def first_epoch() -> int:
    """Where the epochs of a new lease begin: at a random one of 2^38 blocks of 2^24.

    A thread of the same id may have been deleted while an attempt of it was at work. The fence compares for equality,
    so what counts is that the new thread's epochs are none of the old one's.
    """
    return secrets.randbits(38) << 24


def _new_row(
    thread_id: str, user_id: str, metadata: dict[str, Any], config: dict[str, Any], now: datetime
) -> ThreadRow:
    """The row as `insert_thread` makes it."""
    return ThreadRow(
        thread_id=thread_id,
        user_id=user_id,
        created_at=now,
        updated_at=now,
        state_updated_at=None,
        metadata=metadata,
        config=config,
        status=ThreadState.IDLE,
        values=None,
        interrupts={},
        error=None,
        head=None,
        graph_id=None,
        run_seq=0,
        unfinished=0,
    )


async def _find(connection: AsyncConnection, where: ColumnElement[bool]) -> ThreadRow | None:
    row = (await connection.execute(select(threads).where(where))).mappings().one_or_none()
    return None if row is None else thread_row(row)


_HELD = (
    select(thread_leases.c.epoch)
    .where(thread_leases.c.thread_id == bindparam("of_thread"), thread_leases.c.epoch == bindparam("of_epoch"))
    .with_for_update(read=True)
)
_STATE_COLUMNS = ("values", "interrupts", "head", "error", "updated_at", "state_updated_at")
_RECORD_STATE = (
    update(threads)
    .where(threads.c.thread_id == bindparam("of_thread"), _HELD.exists())
    .values(
        status=case((threads.c.unfinished > 0, ThreadState.BUSY.value), else_=of(threads, "status")),
        **bind(threads, *_STATE_COLUMNS),
    )
)
_THREAD_COLUMNS = (
    *("thread_id", "user_id", "created_at", "updated_at", "metadata", "config", "status", "interrupts"),
    *("run_seq", "unfinished"),
)
_FRESH_LEASE = bind(thread_leases, "thread_id", "epoch", "attempt", "claimed_ms", "last_base")


def _insert(kind: Kind) -> Together:
    add = postgresql.insert if kind == "postgresql" else sqlite.insert
    return Together(
        add(threads).values(bind(threads, *_THREAD_COLUMNS)).on_conflict_do_nothing().returning(threads.c.thread_id),
        add(thread_leases).values(_FRESH_LEASE).on_conflict_do_nothing().returning(thread_leases.c.thread_id),
    )


_INSERT: dict[Kind, Together] = {"postgresql": _insert("postgresql"), "sqlite": _insert("sqlite")}
