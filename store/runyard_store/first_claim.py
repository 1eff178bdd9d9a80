"""The claim of a run that was never claimed, on a thread that nobody holds: one statement on Postgres.

Called by leases.py, which takes its own way wherever this one gives nothing. What it spares is on the way of every
run's first event: five round trips.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import BigInteger, column, text

from runyard_store.column_types import JsonText
from runyard_store.database import Database
from runyard_store.pre_run import PreRun
from runyard_store.rows import RunRow, run_row
from runyard_store.tables import runs


@dataclass(frozen=True)
class FirstClaim:
    """The claimed run as it is now, the lease's new epoch, and the pre-run point kept with it."""

    run: RunRow
    epoch: int
    pre_run: PreRun


async def claim_first(db: Database, *, run_id: str, holder: str, now_ms: int) -> FirstClaim | None:
    """Claims attempt 1; None: it isn't such a case, and nothing has changed. Postgres only. Raises Unavailable."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    values = {"of_run": run_id, "holder": holder, "now_ms": now_ms, "now": now}
    async with db.single() as connection:
        row = (await connection.execute(_CLAIM, values)).mappings().one_or_none()
    if row is None:
        return None
    return FirstClaim(run_row(row), row["lease_epoch"], PreRun.from_json(row["lease_pre_run"]))


# `held` locks the newest rows, all else is as of the statement's start. The epoch, which every claim raises, tells
# whether somebody had the thread in between: then the pre-run point read here is too old, and nothing is written.
# A payload that may fork off is for leases.py, which reads it: its pre-run point is another.
_CLAIM = text(f"""
WITH seen AS (
  SELECT l.epoch FROM runs r JOIN thread_leases l ON l.thread_id = r.thread_id WHERE r.run_id = :of_run
), held AS (
  SELECT l.thread_id, l.epoch, l.last_base FROM thread_leases l JOIN runs r ON r.thread_id = l.thread_id
  WHERE r.run_id = :of_run AND r.status = 'pending' AND r.attempt = 0 AND r.event_base = 0
    AND l.holder IS NULL AND l.run_id IS NULL
    AND r.payload NOT LIKE '%checkpoint_id%' AND r.payload NOT LIKE '%checkpoint_map%'
    AND NOT EXISTS (
      SELECT 1 FROM runs o
      WHERE o.thread_id = r.thread_id AND o.sequence < r.sequence AND o.status IN ('pending', 'running')
    )
  FOR UPDATE OF l, r
), head AS (
  SELECT thread_id, (SELECT max(checkpoint_id) FROM checkpoints c WHERE c.thread_id = held.thread_id) AS cut,
    (SELECT max(checkpoint_id) FROM checkpoints c WHERE c.thread_id = held.thread_id AND checkpoint_ns = '') AS base
  FROM held
), point AS (
  SELECT json_build_object('cut', cut, 'base', base, 'upto', CAST(NULL AS text), 'writes', (
    SELECT coalesce(json_agg(json_build_array(
      w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.idx, w.channel, w.type, encode(w.blob, 'base64')
    )), CAST('[]' AS json))
    FROM checkpoints c JOIN checkpoint_writes w
    ON w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
    WHERE c.thread_id = head.thread_id AND c.checkpoint_id >= base
  )) AS pre_run FROM head
), lease AS (
  UPDATE thread_leases l
  SET epoch = l.epoch + 1, run_id = :of_run, attempt = 1, holder = :holder, claimed_ms = CAST(:now_ms AS bigint),
    last_base = greatest(CAST(:now_ms AS bigint), held.last_base + 1), pre_run = CAST(point.pre_run AS text)
  FROM held, seen, point WHERE l.thread_id = held.thread_id AND held.epoch = seen.epoch
  RETURNING l.epoch, l.last_base, l.pre_run
), run AS (
  UPDATE runs r
  SET status = 'running', attempt = 1, started_at = CAST(:now AS timestamptz), updated_at = CAST(:now AS timestamptz),
    event_base = lease.last_base
  FROM lease WHERE r.run_id = :of_run
  RETURNING r.*, lease.epoch, lease.pre_run
)
SELECT {", ".join(f"run.{c.name}" for c in runs.c)}, run.epoch, run.pre_run FROM run
""").columns(*runs.c, column("lease_epoch", BigInteger), column("lease_pre_run", JsonText))
