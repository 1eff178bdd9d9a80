"""Copying a thread with its checkpoints and pending writes. Called by the gateway.

One transaction that has locked the source's lease: no writer of the source can be in the middle of a step, and none
begins before the copy is whole.
"""

import time
from datetime import datetime
from typing import Any

from sqlalchemy import Row, TextClause, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import Held, NotFound
from runyard_api.states import ThreadState
from runyard_store.database import Database
from runyard_store.leases import UPDATE_CLAIM_MS
from runyard_store.rows import ThreadRow, thread_row
from runyard_store.tables import thread_leases, threads
from runyard_store.threads import first_epoch


async def copy_thread(db: Database, source_id: str, user_id: str, new_id: str, now: datetime) -> ThreadRow:
    """A new thread with the source's metadata, config, state and history, and without its runs; its status is idle.

    Raises NotFound, Held (a run or another writer is at work on the source), Unavailable.
    """
    async with db.begin() as connection:
        of_source = thread_leases.c.thread_id == source_id
        lease = (await connection.execute(select(thread_leases).where(of_source).with_for_update())).one_or_none()
        mine = (threads.c.thread_id == source_id) & (threads.c.user_id == user_id)
        row = (await connection.execute(select(threads).where(mine))).mappings().one_or_none()
        if row is None or lease is None:
            raise NotFound(f"Thread with ID {source_id} not found.")
        if lease.holder is not None:
            await _take_over(connection, lease)
        copied = _copied(dict(row), new_id, now)
        await connection.execute(insert(threads).values(copied))
        fresh = {"thread_id": new_id, "epoch": first_epoch(), "attempt": 0, "claimed_ms": 0, "last_base": 0}
        await connection.execute(insert(thread_leases).values(fresh))
        for statement in _COPY[db.kind]:
            await connection.execute(statement, {"source": source_id, "new": new_id})
    return thread_row(copied)


async def _take_over(connection: AsyncConnection, lease: Row[Any]) -> None:
    """Fences out a writer whose claim has run out. Raises Held."""
    if lease.run_id is not None or lease.claimed_ms > time.time() * 1000 - UPDATE_CLAIM_MS:
        raise Held(f"Thread {lease.thread_id} is held by another writer; try again when its run has ended.")
    of_thread = thread_leases.c.thread_id == lease.thread_id
    await connection.execute(update(thread_leases).where(of_thread).values(epoch=lease.epoch + 1, holder=None))


def _copied(row: dict[str, Any], new_id: str, now: datetime) -> dict[str, Any]:
    head = row["head"]
    if head:
        kept = {name: head[name] for name in ("values", "interrupts") if name in head}
        head = {**_renamed(head, row["thread_id"], new_id), **kept}
    fresh = {"thread_id": new_id, "created_at": now, "updated_at": now, "head": head}
    return {**row, **fresh, "status": ThreadState.IDLE, "error": None, "run_seq": 0, "unfinished": 0}


def _renamed(value: Any, old: str, new: str) -> Any:
    """The same with the new id in every `thread_id` that was the old one."""
    if isinstance(value, dict):
        return {k: new if k == "thread_id" and v == old else _renamed(v, old, new) for k, v in value.items()}
    return [_renamed(item, old, new) for item in value] if isinstance(value, list) else value


def _copy(table: str, *columns: str) -> TextClause:
    names = ", ".join(columns)
    return text(
        f"INSERT INTO {table} (thread_id, {names}) SELECT CAST(:new AS text), {names} FROM {table} "
        "WHERE thread_id = :source"
    )


# Neither checkpoints nor their metadata name the thread: LangGraph leaves its id out of both.
_CHECKPOINT = ("checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata")
_WRITE = ("checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type")
_COPY: dict[str, tuple[TextClause, ...]] = {
    "postgresql": (
        _copy("checkpoint_blobs", "checkpoint_ns", "channel", "version", "type", "blob"),
        _copy("checkpoint_writes", *_WRITE, "blob"),
        _copy("checkpoints", *_CHECKPOINT),
    ),
    "sqlite": (_copy("writes", *_WRITE, "value"), _copy("checkpoints", *_CHECKPOINT)),
}
