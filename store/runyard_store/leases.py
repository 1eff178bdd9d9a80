"""The thread lease: one writer per thread. Called by the runtime before it executes or changes anything of a thread.

A claim is a compare-and-set that raises the epoch; every transaction that writes something of the thread checks it.
A run keeps the lease from its first attempt's claim until it ends, whatever happens to its pods in between.
"""

import asyncio
import random
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import bindparam, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import Early, Held, NotFound, Stale
from runyard_api.events import first_base
from runyard_api.states import RunState
from runyard_store.database import Database
from runyard_store.first_claim import claim_first
from runyard_store.pre_run import PreRun, capture, checkpoint_ms, fork_point, progress
from runyard_store.rows import RunRow, run_row
from runyard_store.tables import runs, thread_leases, threads
from runyard_store.together import Together, bind, parameters

UPDATE_CLAIM_MS = 30_000
"""How long a claim that isn't a run's holds others off; its writer is fenced, not trusted, after that."""

_RETRY_SECONDS = (0.005, 0.05)
"""Between two tries to get a lease that is held for moments; random, so that those who wait don't meet again."""

Outcome = Literal["started", "mine", "terminal"]


@dataclass(frozen=True)
class Claim:
    """The outcome of a claim.

    started: execute now. mine: this holder has this attempt already. terminal: the run ended, never execute it again;
    then `epoch` and `pre_run` mean nothing. `resume` is true when the root namespace holds a checkpoint of this run:
    go on with input None; false on attempt ≥ 2 means restore `pre_run` and start as attempt 1 did. `head_ms` is the
    clock time of the newest checkpoint id (None: no checkpoint): ids written below it would be lost.
    """

    outcome: Outcome
    run: RunRow
    epoch: int
    pre_run: PreRun
    resume: bool
    head_ms: int | None


@dataclass(frozen=True)
class Lease:
    """A row of `thread_leases`. `holder` None means released; `run_id` None with a holder means a state update."""

    epoch: int
    run_id: str | None
    attempt: int
    holder: str | None
    claimed_ms: int
    last_base: int
    pre_run: dict[str, Any] | None


def decide(lease: Lease, run: RunRow, *, attempt: int, holder: str, now_ms: int, lower_unfinished: bool) -> Outcome:
    """What a claim of `run` by `holder` comes to. Pure. Raises Stale, Early, Held."""
    if run.status.finished:
        return "terminal"
    ours = lease.run_id == run.run_id
    if ours and lease.attempt == attempt == run.attempt and lease.holder == holder:
        return "mine"
    if attempt <= run.attempt:
        raise Stale(f"attempt {attempt} of run {run.run_id} isn't newer than attempt {run.attempt}")
    if lower_unfinished:
        raise Early(f"an earlier run of thread {run.thread_id} is unfinished")
    if not ours and _holds(lease, now_ms):
        raise Held(f"thread {run.thread_id} is held by {lease.holder}", holder=lease.holder)
    return "started"


async def claim_run(db: Database, *, run_id: str, attempt: int, holder: str, now_ms: int) -> Claim:
    """Claims the run's thread for one attempt, in one transaction; repeating it with the same holder is harmless.

    `holder` names a process (pod uid and boot id). Raises NotFound, Stale (the attempt isn't newer than one seen),
    Early (a lower sequence is unfinished), Held (a state update holds the thread), Unavailable.
    """
    if attempt == 1 and db.kind == "postgresql":
        first = await claim_first(db, run_id=run_id, holder=holder, now_ms=now_ms)
        if first is not None:
            head_ms = checkpoint_ms(first.pre_run.cut)
            return Claim("started", first.run, first.epoch, first.pre_run, resume=False, head_ms=head_ms)
    async with db.begin() as connection:
        lease, run, lower = await _locked(connection, run_id)
        outcome = decide(lease, run, attempt=attempt, holder=holder, now_ms=now_ms, lower_unfinished=lower)
        if outcome == "terminal":
            return Claim(outcome, run, lease.epoch, PreRun(), resume=False, head_ms=None)
        if lease.run_id == run_id:
            pre_run = PreRun.from_json(lease.pre_run)
            newest, resume = await progress(db.kind, connection, run.thread_id, run_id)
        else:
            pre_run = await capture(db.kind, connection, run.thread_id, fork_point(run.payload))
            newest, resume = pre_run.cut, False
        head_ms = checkpoint_ms(newest)
        if outcome == "mine":
            return Claim(outcome, run, lease.epoch, pre_run, resume, head_ms)
        run = _started(run, lease, attempt, now_ms)
        await _write_claim(db, connection, lease, run, holder=holder, pre_run=pre_run, now_ms=now_ms)
    return Claim(outcome, run, lease.epoch + 1, pre_run, resume, head_ms)


async def claim_thread(
    db: Database, thread_id: str, holder: str, now_ms: int, *, user_id: str | None = None, patience_s: float = 0
) -> int:
    """Claims a thread for a writer that is no run (update state) and returns the epoch; `release` gives it back.

    Such writers hold it for moments, so one is waited for, `patience_s` seconds in all; a run isn't. With `user_id` it
    is that user's or not there: one that was looked up before may be another's of the same id by now. Raises NotFound,
    Held (an unfinished run or another writer has it), Unavailable.
    """
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        epoch = await _take(db, thread_id, holder, now_ms + int(waited * 1000), user_id)
        if epoch is not None:
            return epoch
        async with db.read() as connection:
            row = (await connection.execute(_HELD_BY, {"of_thread": thread_id})).one_or_none()
        if row is None or user_id not in (None, row.user_id):
            raise NotFound(f"Thread with ID {thread_id} not found.")
        if row.holder is not None and (row.run_id is not None or waited >= patience_s):
            end = "its run has ended" if row.run_id else "that one is done"
            raise Held(f"Thread {thread_id} is held by another writer; try again when {end}.", holder=row.holder)
        await asyncio.sleep(random.uniform(*_RETRY_SECONDS))


async def _take(db: Database, thread_id: str, holder: str, now_ms: int, user_id: str | None) -> int | None:
    free = thread_leases.c.holder.is_(None) | (
        thread_leases.c.run_id.is_(None) & (thread_leases.c.claimed_ms <= now_ms - UPDATE_CLAIM_MS)
    )
    if user_id is not None:
        free &= exists().where(threads.c.thread_id == thread_id, threads.c.user_id == user_id)
    take = (
        update(thread_leases)
        .where(thread_leases.c.thread_id == thread_id, free)
        .values(epoch=thread_leases.c.epoch + 1, holder=holder, run_id=None, attempt=0, claimed_ms=now_ms)
        .returning(thread_leases.c.epoch)
    )
    async with db.single() as connection:
        epoch: int | None = (await connection.execute(take)).scalar_one_or_none()
    return epoch


async def release(db: Database, thread_id: str, epoch: int) -> None:
    """Gives a lease of `claim_thread` back; nothing happens if it was taken over. Raises Unavailable."""
    async with db.single() as connection:
        mine = (thread_leases.c.thread_id == thread_id) & (thread_leases.c.epoch == epoch)
        await connection.execute(update(thread_leases).where(mine).values(holder=None))


async def check(db: Database, thread_id: str, epoch: int) -> bool:
    """Whether the lease still has this epoch. Raises Unavailable."""
    async with db.read() as connection:
        query = select(thread_leases.c.epoch).where(thread_leases.c.thread_id == thread_id)
        return (await connection.execute(query)).scalar_one_or_none() == epoch


def _holds(lease: Lease, now_ms: int) -> bool:
    if lease.holder is None:
        return False
    return lease.run_id is not None or now_ms - lease.claimed_ms < UPDATE_CLAIM_MS


def _started(run: RunRow, lease: Lease, attempt: int, now_ms: int) -> RunRow:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return replace(
        run,
        status=RunState.RUNNING,
        attempt=attempt,
        started_at=run.started_at or now,
        updated_at=now,
        event_base=run.event_base or first_base(now_ms, lease.last_base),
    )


async def _locked(connection: AsyncConnection, run_id: str) -> tuple[Lease, RunRow, bool]:
    """The lease and the run, locked in that order, and whether a lower sequence of the thread is unfinished.

    The lower ones are read as of before the lock was got: they only become fewer, so Early may come once too often.
    """
    row = (await connection.execute(_LOCK, {"of_run": run_id})).mappings().one_or_none()
    if row is None:
        raise NotFound(f"Run with ID {run_id} not found.")
    lease = Lease(**{name: row[f"lease_{name}"] for name in _LEASE_COLUMNS})
    return lease, run_row(row), row["lower"] > 0


async def _write_claim(
    db: Database, connection: AsyncConnection, lease: Lease, run: RunRow, *, holder: str, pre_run: PreRun, now_ms: int
) -> None:
    values = {
        "of_thread": run.thread_id,
        "of_run": run.run_id,
        **parameters(
            thread_leases,
            epoch=lease.epoch + 1,
            run_id=run.run_id,
            attempt=run.attempt,
            holder=holder,
            claimed_ms=now_ms,
            last_base=max(run.event_base, lease.last_base),
            pre_run=pre_run.to_json(),
        ),
        **parameters(runs, **{name: getattr(run, name) for name in _STARTED_COLUMNS}),
    }
    await _WRITE.execute(db.kind, connection, values)


_HELD_BY = (
    select(thread_leases.c.holder, thread_leases.c.run_id, threads.c.user_id)
    .join(threads, threads.c.thread_id == thread_leases.c.thread_id)
    .where(thread_leases.c.thread_id == bindparam("of_thread"))
)
_LEASE_COLUMNS = ("epoch", "run_id", "attempt", "holder", "claimed_ms", "last_base", "pre_run")
_lower = runs.alias("lower_runs")
_LOCK = (
    select(
        runs,
        *(thread_leases.c[name].label(f"lease_{name}") for name in _LEASE_COLUMNS),
        select(func.count())
        .where(
            _lower.c.thread_id == runs.c.thread_id,
            _lower.c.sequence < runs.c.sequence,
            _lower.c.status.in_(("pending", "running")),
        )
        .scalar_subquery()
        .label("lower"),
    )
    .join(thread_leases, thread_leases.c.thread_id == runs.c.thread_id)
    .where(runs.c.run_id == bindparam("of_run"))
    .with_for_update(of=[thread_leases, runs])
)
_STARTED_COLUMNS = ("status", "attempt", "started_at", "updated_at", "event_base")
_WRITE = Together(
    update(thread_leases)
    .where(thread_leases.c.thread_id == bindparam("of_thread"))
    .values(bind(thread_leases, *_LEASE_COLUMNS))
    .returning(thread_leases.c.thread_id),
    update(runs)
    .where(runs.c.run_id == bindparam("of_run"))
    .values(bind(runs, *_STARTED_COLUMNS))
    .returning(runs.c.run_id),
)
