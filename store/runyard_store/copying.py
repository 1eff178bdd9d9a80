"""Copying a thread with its checkpoints and pending writes. Called by the gateway.

The copy claims the source like any writer, so nobody is in the middle of a step of it.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import TextClause, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import Held
from runyard_api.states import ThreadState
from runyard_store.database import Database
from runyard_store.leases import claim_thread, release
from runyard_store.rows import ThreadRow, thread_row
from runyard_store.tables import thread_leases, threads
from runyard_store.threads import first_epoch, get_thread

PATIENCE_S = 5.0
"""How long other writers, which hold the thread for moments, are waited for."""


async def copy_thread(db: Database, source_id: str, user_id: str, new_id: str, now: datetime) -> ThreadRow:
    """A new thread with the source's metadata, config, state and history, and without its runs; its status is idle.

    Waits a few seconds for a writer that is no run. Raises NotFound, Held (a run is at work on the source),
    Unavailable.
    """
    await get_thread(db, source_id, user_id)
    now_ms = int(now.timestamp() * 1000)
    epoch = await claim_thread(db, source_id, f"copy to {new_id}", now_ms, user_id=user_id, patience_s=PATIENCE_S)
    try:
        async with db.begin() as connection:
            return await _copy_locked(db, connection, source_id, epoch, new_id, now)
    finally:
        await release(db, source_id, epoch)


async def _copy_locked(
    db: Database, connection: AsyncConnection, source_id: str, epoch: int, new_id: str, now: datetime
) -> ThreadRow:
    mine = (thread_leases.c.thread_id == source_id) & (thread_leases.c.epoch == epoch)
    if (await connection.execute(select(thread_leases.c.epoch).where(mine).with_for_update())).one_or_none() is None:
        raise Held(f"Thread {source_id} was taken by another writer; try again.")
    row = (await connection.execute(select(threads).where(threads.c.thread_id == source_id))).mappings().one()
    copied = _copied(dict(row), new_id, now)
    await connection.execute(insert(threads).values(copied))
    fresh = {"thread_id": new_id, "epoch": first_epoch(), "attempt": 0, "claimed_ms": 0, "last_base": 0}
    await connection.execute(insert(thread_leases).values(fresh))
    for statement in _COPY[db.kind]:
        await connection.execute(statement, {"source": source_id, "new": new_id})
    return thread_row(copied)


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
