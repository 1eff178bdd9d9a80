"""The end of a run that a runtime executed: one fenced transaction. Called by the runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, case, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import Fenced
from runyard_api.events import Event
from runyard_api.states import RunState, ThreadState
from runyard_store.database import Database
from runyard_store.ending import leave_thread, lock_in_order, remove_run
from runyard_store.event_log import COLUMNS, batch_values
from runyard_store.pre_run import PreRun, restore
from runyard_store.tables import UNFINISHED, event_batches, runs, thread_leases, threads
from runyard_store.together import bind, of, parameters


@dataclass(frozen=True, kw_only=True)
class Finish:
    """How a run ended. JSON fields take values or JSON bytes.

    `result`: the final values with `__interrupt__`. `values`, `interrupts`, `head`: what the thread row shows from now
    on; None keeps what it shows (a run that never reached a state). `thread_status`: the thread's status if no other
    run waits. `error`: {error, message} of a failed run. `last_events`: what the log lacks, with `end`.
    """

    run_id: str
    thread_id: str
    epoch: int
    attempt: int
    state: RunState
    result: Any
    error: dict[str, str] | None
    values: Any
    interrupts: Any
    head: Any
    thread_status: ThreadState
    last_events: Sequence[Event]
    now: datetime


async def finish_run(db: Database, finish: Finish) -> bool:
    """Writes row, thread, last events and releases the lease, all or nothing; False if the row was terminal already:
    repeating it after a lost answer is harmless.

    Raises Fenced (another writer has the thread, or the run was ended from outside), Unavailable.
    """
    values = _values(finish)
    if db.kind == "postgresql":
        async with db.single() as connection:
            held, ended = (await connection.execute(_FINISH, values)).one()
        if not held:
            raise _fenced(finish.thread_id)
        return bool(ended)
    async with db.begin() as connection:
        return await _finish_stepwise(connection, finish.thread_id, values)


async def finish_rollback(
    db: Database, *, run_id: str, thread_id: str, epoch: int, pre_run: PreRun, now: datetime
) -> None:
    """Ends a run as if it had never been: restores the pre-run point, removes row and events, releases the lease.

    Nothing happens if it was done already. Raises Fenced, Unavailable.
    """
    async with db.begin() as connection:
        if not (await connection.execute(_LEASE, {"of_thread": thread_id, "of_epoch": epoch})).all():
            raise _fenced(thread_id)
        row = (await connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id, UNFINISHED))).one_or_none()
        if row is None:
            return
        _, thread = await lock_in_order(connection, run_id)
        await restore(db.kind, connection, thread_id, pre_run)
        await leave_thread(connection, thread, None, now)
        await remove_run(connection, run_id)


async def _finish_stepwise(connection: AsyncConnection, thread_id: str, values: dict[str, Any]) -> bool:
    if not (await connection.execute(_LEASE, values)).all():
        raise _fenced(thread_id)
    if not (await connection.execute(_RUN, values)).all():
        return False
    if values["event_batches_n"]:
        batch = {name: values[f"event_batches_{name}"] for name in COLUMNS}
        await connection.execute(insert(event_batches), batch)
    await connection.execute(_THREAD, values)
    return True


def _fenced(thread_id: str) -> Fenced:
    return Fenced(f"the lease of thread {thread_id} was taken by another writer")


def _values(finish: Finish) -> dict[str, Any]:
    return {
        "of_thread": finish.thread_id,
        "of_epoch": finish.epoch,
        "of_run": finish.run_id,
        **parameters(
            runs,
            status=finish.state,
            result=finish.result,
            error=finish.error,
            attempt=finish.attempt,
            updated_at=finish.now,
            ended_at=finish.now,
        ),
        **batch_values(finish.run_id, finish.last_events),
        **parameters(
            threads,
            status=finish.thread_status,
            values=finish.values,
            interrupts=finish.interrupts,
            head=finish.head,
            error=finish.error if finish.thread_status is ThreadState.ERROR else None,
            updated_at=finish.now,
            state_updated_at=None if finish.values is None else finish.now,
        ),
    }


_LEASE = (
    update(thread_leases)
    .where(thread_leases.c.thread_id == bindparam("of_thread"), thread_leases.c.epoch == bindparam("of_epoch"))
    .values(holder=None, run_id=None, pre_run=None)
    .returning(thread_leases.c.thread_id)
)
_RUN = (
    update(runs)
    .where(runs.c.run_id == bindparam("of_run"), UNFINISHED)
    .values(bind(runs, "status", "result", "error", "attempt", "updated_at", "ended_at"))
    .returning(runs.c.thread_id)
)
_KEPT = ("values", "interrupts", "head", "state_updated_at")
_THREAD = (
    update(threads)
    .where(threads.c.thread_id == bindparam("of_thread"))
    .values(
        unfinished=threads.c.unfinished - 1,
        status=case((threads.c.unfinished > 1, ThreadState.BUSY.value), else_=of(threads, "status")),
        **bind(threads, "error", "updated_at"),
        **{name: func.coalesce(of(threads, name), threads.c[name]) for name in _KEPT},
    )
    .returning(threads.c.thread_id)
)


def _combined() -> Select[Any]:
    """All of it as one statement: each step happens only if the step before it returned its row."""
    lease = _LEASE.cte("lease")
    run = _RUN.where(exists(select(lease.c.thread_id))).cte("run")
    thread = _THREAD.where(threads.c.thread_id.in_(select(run.c.thread_id))).cte("thread")
    last = select(*bind(event_batches, *COLUMNS).values()).select_from(run).where(of(event_batches, "n") > 0)
    batch = insert(event_batches).from_select(list(COLUMNS), last).returning(event_batches.c.run_id).cte("batch")
    counts = (select(func.count()).select_from(step).scalar_subquery() for step in (lease, run))
    return select(*counts).add_cte(thread, batch)


_FINISH = _combined()
