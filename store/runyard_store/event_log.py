"""The event log: one compressed row per batch. The runtime appends under its lease; gateways read."""

import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, bindparam, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from runyard_api.errors import Fenced
from runyard_api.events import Event, EventId, events_from_lines
from runyard_store.database import Database
from runyard_store.tables import event_batches, thread_leases
from runyard_store.together import of, parameters

COLUMNS = ("run_id", "first_seq", "first_base", "last_seq", "n", "blob")


async def append(db: Database, run_id: str, thread_id: str, epoch: int, events: Sequence[Event]) -> None:
    """Adds one batch of events, oldest first, in one statement; repeating it with the same events is harmless.

    Raises Fenced, Unavailable.
    """
    if not events:
        return
    values = {**batch_values(run_id, events), "of_thread": thread_id, "of_epoch": epoch}
    async with db.single() as connection:
        written = (await connection.execute(_APPEND[db.kind], values)).all()
    if not written:
        raise Fenced(f"the lease of thread {thread_id} was taken by another writer")


async def read(db: Database, run_id: str, after: EventId | None = None, limit_batches: int = 100) -> list[Event]:
    """Events after `after` (exclusive; None: from the first), oldest first, of at most `limit_batches` batches.

    An empty list means the log has nothing later. Raises Unavailable.
    """
    after = after or EventId(0, 0)
    values = {"of_run": run_id, "after_base": after.base, "after_seq": after.seq, "limit_batches": limit_batches}
    async with db.read() as connection:
        blobs = (await connection.execute(_READ, values)).scalars().all()
    return [event for blob in blobs for event in events_from_lines(zlib.decompress(blob)) if event.id > after]


def batch_values(run_id: str, events: Sequence[Event]) -> dict[str, Any]:
    """The parameters of one batch row; without events `n` is 0. Level 1: higher ones cost more time than they save."""
    first, last = (events[0].id, events[-1].id) if events else (EventId(0, 0), EventId(0, 0))
    blob = zlib.compress(b"".join(event.line() for event in events), 1)
    return parameters(
        event_batches,
        run_id=run_id,
        first_seq=first.seq,
        first_base=first.base,
        last_seq=last.seq,
        n=len(events),
        blob=blob,
    )


def _append(kind: str) -> Any:
    # FOR SHARE waits for a claim under way and then looks at the epoch again, so none slips in between.
    held = (
        select(*(of(event_batches, name) for name in COLUMNS))
        .select_from(thread_leases)
        .where(thread_leases.c.thread_id == bindparam("of_thread"), thread_leases.c.epoch == bindparam("of_epoch"))
        .with_for_update(read=True)
    )
    add = (postgresql.insert if kind == "postgresql" else sqlite.insert)(event_batches).from_select(list(COLUMNS), held)
    return add.on_conflict_do_update(
        index_elements=["run_id", "first_seq"],
        set_={name: add.excluded[name] for name in ("last_seq", "n", "blob")},
    ).returning(event_batches.c.run_id)


_APPEND = {kind: _append(kind) for kind in ("postgresql", "sqlite")}
_READ = (
    select(event_batches.c.blob)
    .where(
        event_batches.c.run_id == bindparam("of_run"),
        or_(
            event_batches.c.first_base > bindparam("after_base"),
            and_(
                event_batches.c.first_base == bindparam("after_base"),
                event_batches.c.last_seq > bindparam("after_seq"),
            ),
        ),
    )
    .order_by(event_batches.c.first_seq)
    .limit(bindparam("limit_batches"))
)
