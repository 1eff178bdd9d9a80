"""Deleting threads with everything of theirs, and finding those of stateless runs whose time has come. Called by the
gateway.

Nothing can write to a thread while or after it is deleted: the lease that every writer's transaction checks is locked
first and goes with it.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BindParameter, and_, bindparam, delete, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import Conflict, Held, NotFound
from runyard_api.states import RunState
from runyard_store.database import Database
from runyard_store.ending import remove_run
from runyard_store.tables import (
    TEMPORARY_ENDED,
    event_batches,
    lg_blobs_postgres,
    lg_checkpoints,
    lg_writes_postgres,
    lg_writes_sqlite,
    runs,
    thread_leases,
    threads,
)
from runyard_store.together import Together
from runyard_store.urls import Kind


async def expired_threads(db: Database, ended_before: datetime, limit: int) -> list[str]:
    """Ids of threads of stateless runs all of whose runs ended before that time, those that ended first first.

    Raises Unavailable.
    """
    async with db.read() as connection:
        found = await connection.execute(_EXPIRED, {"ended_before": ended_before, "at_most": limit})
        return [row.thread_id for row in found]


@dataclass(frozen=True)
class RemovedRun:
    """A run whose row is gone; `unfinished`: something may still be executing it, to no effect."""

    run_id: str
    thread_id: str
    unfinished: bool


async def delete_idle_thread(db: Database, thread_id: str) -> None:
    """Removes the thread, its lease, runs, events and checkpoints, all or nothing.

    Raises NotFound, Held (a run of it is unfinished), Unavailable.
    """
    async with db.begin() as connection:
        if await _locked(connection, thread_id, None):
            raise Held(f"Thread {thread_id} has an unfinished run; try again when it has ended.")
        await _DELETE[db.kind].execute(db.kind, connection, {"of_thread": thread_id})


async def delete_thread(db: Database, thread_id: str, user_id: str) -> list[RemovedRun]:
    """Removes a user's thread in the same way, unfinished runs included: they are fenced out, and the caller tells
    whoever executes them. Raises NotFound, Unavailable.
    """
    async with db.begin() as connection:
        await _locked(connection, thread_id, user_id)
        found = (await connection.execute(_RUNS, {"of_thread": thread_id})).all()
        await _DELETE[db.kind].execute(db.kind, connection, {"of_thread": thread_id})
    return [RemovedRun(row.run_id, thread_id, not RunState(row.status).finished) for row in found]


async def delete_finished_run(db: Database, run_id: str, thread_id: str, user_id: str) -> None:
    """Removes the row and the events of a finished run; its checkpoints are the thread's and stay.

    Raises NotFound, Conflict (it is unfinished), Unavailable.
    """
    async with db.begin() as connection:
        mine = (runs.c.run_id == run_id) & (runs.c.thread_id == thread_id) & (runs.c.user_id == user_id)
        status = (await connection.execute(select(runs.c.status).where(mine).with_for_update())).scalar_one_or_none()
        if status is None:
            raise NotFound(f"Run with ID {run_id} not found.")
        if not RunState(status).finished:
            raise Conflict(f"Run {run_id} is {status}: cancel it first, with wait=true, or with action=rollback.")
        await remove_run(connection, run_id)


async def _locked(connection: AsyncConnection, thread_id: str, user_id: str | None) -> int:
    """Locks in the order of every writer, lease, then thread, under which runs are made; gives the number of unfinished
    runs. Raises NotFound."""
    await connection.execute(_LOCK_LEASE, {"of_thread": thread_id})
    row = (await connection.execute(_LOCK_THREAD, {"of_thread": thread_id})).one_or_none()
    if row is None or user_id not in (None, row.user_id):
        raise NotFound(f"Thread with ID {thread_id} not found.")
    unfinished: int = row.unfinished
    return unfinished


_others = runs.alias("other_runs")
_EXPIRED = (
    select(runs.c.thread_id)
    .where(
        TEMPORARY_ENDED,
        runs.c.ended_at < bindparam("ended_before"),
        ~exists().where(
            and_(
                _others.c.thread_id == runs.c.thread_id,
                or_(_others.c.ended_at.is_(None), _others.c.ended_at >= bindparam("ended_before")),
            )
        ),
    )
    .order_by(runs.c.ended_at)
    .limit(bindparam("at_most"))
)
_LOCK_LEASE = select(thread_leases.c.epoch).where(thread_leases.c.thread_id == bindparam("of_thread")).with_for_update()
_LOCK_THREAD = (
    select(threads.c.user_id, threads.c.unfinished)
    .where(threads.c.thread_id == bindparam("of_thread"))
    .with_for_update()
)
_RUNS = select(runs.c.run_id, runs.c.status).where(runs.c.thread_id == bindparam("of_thread"))


def _delete(kind: Kind) -> Together:
    of_thread: BindParameter[str] = bindparam("of_thread")
    langgraph = {
        "postgresql": (lg_checkpoints, lg_blobs_postgres, lg_writes_postgres),
        "sqlite": (lg_checkpoints, lg_writes_sqlite),
    }
    of_its_runs = event_batches.c.run_id.in_(select(runs.c.run_id).where(runs.c.thread_id == of_thread))
    return Together(
        delete(event_batches).where(of_its_runs).returning(event_batches.c.run_id),
        *(delete(t).where(t.c.thread_id == of_thread).returning(t.c.thread_id) for t in langgraph[kind]),
        # Lease and runs go with it.
        delete(threads).where(threads.c.thread_id == of_thread).returning(threads.c.thread_id),
    )


_DELETE: dict[Kind, Together] = {"postgresql": _delete("postgresql"), "sqlite": _delete("sqlite")}
