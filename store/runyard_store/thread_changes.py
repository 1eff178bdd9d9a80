"""Changes of a thread that are no writes of its state: metadata, and a head that has become known. Called by the
gateway."""

from datetime import datetime
from typing import Any

from sqlalchemy import case, select, update

from runyard_api.errors import NotFound
from runyard_api.states import ThreadState
from runyard_store.database import Database
from runyard_store.rows import UNKNOWN_HEAD, ThreadRow, thread_row
from runyard_store.tables import thread_leases, threads


async def merge_metadata(
    db: Database, thread_id: str, user_id: str, metadata: dict[str, Any], now: datetime
) -> ThreadRow:
    """Sets these keys of the thread's metadata and leaves the others; gives the thread as it is then.

    Raises NotFound, Invalid, Unavailable.
    """
    mine = (threads.c.thread_id == thread_id) & (threads.c.user_id == user_id)
    async with db.begin() as connection:
        row = (await connection.execute(select(threads).where(mine).with_for_update())).mappings().one_or_none()
        if row is None:
            raise NotFound(f"Thread with ID {thread_id} not found.")
        changed = {"metadata": {**row["metadata"], **metadata}, "updated_at": now}
        await connection.execute(update(threads).where(mine).values(changed))
    return thread_row({**row, **changed})


async def resting_epoch(db: Database, thread_id: str) -> int | None:
    """The epoch of the thread's lease while nobody holds it; None while somebody does. Raises Unavailable."""
    free = (thread_leases.c.thread_id == thread_id) & thread_leases.c.holder.is_(None)
    async with db.read() as connection:
        epoch: int | None = (await connection.execute(select(thread_leases.c.epoch).where(free))).scalar_one_or_none()
    return epoch


async def record_known_head(
    db: Database, thread_id: str, epoch: int, *, values: Any, interrupts: dict[str, Any], head: dict[str, Any] | None
) -> None:
    """Fills in a head that was unknown, as it was read while the lease rested with this epoch (None: there is no
    checkpoint); nothing happens if somebody has claimed the thread since: that writer leaves the head behind.

    Raises Unavailable.
    """
    waiting = ThreadState.INTERRUPTED if interrupts or (head or {}).get("next") else ThreadState.IDLE
    status = case(
        (threads.c.unfinished > 0, ThreadState.BUSY.value),
        (threads.c.error.is_not(None), ThreadState.ERROR.value),
        else_=waiting.value,
    )
    held = select(thread_leases.c.epoch).where(
        thread_leases.c.thread_id == thread_id, thread_leases.c.epoch == epoch, thread_leases.c.holder.is_(None)
    )
    unknown = (threads.c.thread_id == thread_id) & (threads.c.head == UNKNOWN_HEAD)
    async with db.single() as connection:
        await connection.execute(
            update(threads)
            .where(unknown, held.with_for_update(read=True).exists())
            .values(values=values, interrupts=interrupts, head=head, status=status)
        )
