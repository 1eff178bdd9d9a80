"""The pre-run point of a thread: what its checkpoints were before a run's first attempt, and how to go back to it.

Captured inside the claim (leases.py), kept in the lease row, restored by the runtime for rollback and before an attempt
that can't resume. Deleting the run's checkpoints alone isn't enough: a human's answer is a pending write on the
checkpoint before them, and would answer again.

One id marks the point for all namespaces: the claim waits until the clock is past the newest checkpoint id, and the
lease keeps others away, so every later id is this run's.
"""

import base64
import re
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import TextClause, and_, delete, insert, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import Fenced
from runyard_store.database import Database
from runyard_store.tables import lg_checkpoints, lg_writes_postgres, lg_writes_sqlite, thread_leases
from runyard_store.urls import Kind

Write = tuple[str, str, str, str, int, str, str | None, bytes | None]
"""checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, bytes."""

_CHECKPOINT_ID = re.compile(r"[0-9a-f]{12}6[0-9a-f]{19}")
_GREGORIAN_TO_UNIX = 0x01B21DD213814000
"""Ticks of 100 ns from the start of uuid time (1582) to 1970."""


@dataclass(frozen=True)
class PreRun:
    """`cut` is the newest checkpoint id of the thread, None without checkpoints. `writes` are the pending writes of the
    checkpoints from `base` up to but not including `upto`: those the run can add to, subgraphs' included. `base` is the
    root's head, or where the run forks off; `upto` the root's next checkpoint after it (None: there is none)."""

    cut: str | None = None
    base: str | None = None
    upto: str | None = None
    writes: tuple[Write, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As kept in `thread_leases.pre_run`; bytes in base64."""
        writes = [(*w[:-1], None if w[-1] is None else base64.b64encode(w[-1]).decode()) for w in self.writes]
        return {"cut": self.cut, "base": self.base, "upto": self.upto, "writes": writes}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> Self:
        """Reads what `to_json` made; None gives the point of a thread without checkpoints."""
        if value is None:
            return cls()
        writes = tuple((*w[:-1], None if w[-1] is None else base64.b64decode(w[-1])) for w in value["writes"])
        return cls(value["cut"], value["base"], value["upto"], writes)


def fork_point(payload: dict[str, Any]) -> str | None:
    """The oldest checkpoint id that a run's payload starts from, None when it goes on from the head."""
    checkpoint = {**_dict(_dict(payload.get("config")).get("configurable")), **_dict(payload.get("checkpoint"))}
    ids = [checkpoint.get("checkpoint_id"), *_dict(checkpoint.get("checkpoint_map")).values()]
    return min((i for i in ids if isinstance(i, str) and i), default=None)


def _dict(value: Any) -> dict[str, Any]:
    """Users' JSON may be anything, and a claim must not fail because of it: it would be tried for ever."""
    return value if isinstance(value, dict) else {}


def checkpoint_ms(checkpoint_id: str | None) -> int | None:
    """The clock time inside a checkpoint id (a uuid of version 6) in ms; None for anything else."""
    digits = (checkpoint_id or "").replace("-", "")
    if not _CHECKPOINT_ID.fullmatch(digits):
        return None
    ticks = int(digits[:12], 16) << 12 | int(digits[13:16], 16)
    return (ticks - _GREGORIAN_TO_UNIX) // 10_000


async def capture(kind: Kind, connection: AsyncConnection, thread_id: str, fork: str | None) -> PreRun:
    """Reads the pre-run point in the claim's transaction, after the lease is locked: one statement."""
    rows = (await connection.execute(_CAPTURE[kind], {"of_thread": thread_id, "fork": fork})).all()
    cut, base, upto = rows[0][:3]
    return PreRun(cut, base, upto, tuple(tuple(row[3:]) for row in rows if row[4] is not None))


async def progress(kind: Kind, connection: AsyncConnection, thread_id: str, run_id: str) -> tuple[str | None, bool]:
    """The newest checkpoint id of the thread, and whether the root namespace holds a checkpoint of this run."""
    row = (await connection.execute(_PROGRESS[kind], {"of_thread": thread_id, "run": run_id})).one()
    return row[0], bool(row[1])


async def restore_pre_run(db: Database, thread_id: str, epoch: int, pre_run: PreRun) -> None:
    """Deletes the thread's later checkpoints and puts back exactly its pending writes, under the lease.

    Raises Fenced, Unavailable.
    """
    async with db.begin() as connection:
        held = select(thread_leases.c.epoch).where(thread_leases.c.thread_id == thread_id).with_for_update()
        if (await connection.execute(held)).scalar_one_or_none() != epoch:
            raise Fenced(f"the lease of thread {thread_id} was taken by another writer")
        await restore(db.kind, connection, thread_id, pre_run)


async def restore(kind: Kind, connection: AsyncConnection, thread_id: str, pre_run: PreRun) -> None:
    """The restoring itself, in a transaction that has locked the lease."""
    writes = _WRITES[kind]
    if kind == "postgresql":
        await connection.execute(_DELETE_BLOBS, {"of_thread": thread_id, "cut": pre_run.cut or ""})
    later = lg_checkpoints.c.checkpoint_id > (pre_run.cut or "")
    await connection.execute(delete(lg_checkpoints).where(lg_checkpoints.c.thread_id == thread_id, later))
    gone = writes.c.checkpoint_id > (pre_run.cut or "")
    if pre_run.base is not None:
        touched = writes.c.checkpoint_id >= pre_run.base
        if pre_run.upto is not None:
            touched = and_(touched, writes.c.checkpoint_id < pre_run.upto)
        gone = or_(gone, touched)
    await connection.execute(delete(writes).where(writes.c.thread_id == thread_id, gone))
    if pre_run.writes:
        names = [c.name for c in writes.c]
        rows = [dict(zip(names, (thread_id, *write), strict=True)) for write in pre_run.writes]
        await connection.execute(insert(writes), rows)


_WRITES = {"postgresql": lg_writes_postgres, "sqlite": lg_writes_sqlite}

# One row per pending write, at least one: the writes' columns are NULL if there are none.
_CAPTURE_SQL = """
WITH point AS (
  SELECT (SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :of_thread) AS cut,
    coalesce(CAST(:fork AS text), (
      SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :of_thread AND checkpoint_ns = ''
    )) AS base
), area AS (
  SELECT cut, base, (
    SELECT min(checkpoint_id) FROM checkpoints
    WHERE thread_id = :of_thread AND checkpoint_ns = '' AND checkpoint_id > base
  ) AS upto FROM point
)
SELECT cut, base, upto, w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.idx, w.channel, w.type, w.{blob}
FROM area LEFT JOIN (
  checkpoints c JOIN {writes} w
  ON w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
) ON c.thread_id = :of_thread AND c.checkpoint_id >= base AND (upto IS NULL OR c.checkpoint_id < upto)"""

_PROGRESS_SQL = """
SELECT (SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = :of_thread), EXISTS (
  SELECT 1 FROM checkpoints WHERE thread_id = :of_thread AND checkpoint_ns = '' AND {run_id} = :run
)"""

_CAPTURE: dict[str, TextClause] = {
    "postgresql": text(_CAPTURE_SQL.format(writes="checkpoint_writes", blob="blob")),
    "sqlite": text(_CAPTURE_SQL.format(writes="writes", blob="value")),
}
_PROGRESS: dict[str, TextClause] = {
    "postgresql": text(_PROGRESS_SQL.format(run_id="metadata ->> 'run_id'")),
    "sqlite": text(_PROGRESS_SQL.format(run_id="json_extract(CAST(metadata AS TEXT), '$.run_id')")),
}

# A blob may serve many checkpoints: those that no kept checkpoint names go with the deleted ones.
_DELETE_BLOBS = text("""
DELETE FROM checkpoint_blobs WHERE thread_id = :of_thread AND (checkpoint_ns, channel, version) IN (
  SELECT checkpoint_ns, v.key, v.value FROM checkpoints, jsonb_each_text(checkpoint -> 'channel_versions') v
  WHERE thread_id = :of_thread AND checkpoint_id > :cut
  EXCEPT
  SELECT checkpoint_ns, v.key, v.value FROM checkpoints, jsonb_each_text(checkpoint -> 'channel_versions') v
  WHERE thread_id = :of_thread AND checkpoint_id <= :cut
)""")
