"""Runs as their rows say: reading, listing, cancelling. Called by gateway, operator and embedded dispatcher.

Rows of `threads` count their unfinished runs: every change of a run's finished-ness changes the count in the same
transaction (creating.py, unheld.py, finish.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from runyard_api.errors import NotFound
from runyard_api.states import CancelAction, RunState
from runyard_store.creating import NewRun, create_run
from runyard_store.database import Database
from runyard_store.rows import RunRow, run_row
from runyard_store.tables import UNFINISHED, runs
from runyard_store.unheld import delete_run, finish_unheld

__all__ = [
    "NewRun",
    "ObjectOfRun",
    "RunRow",
    "cancelled_runs",
    "count_failures",
    "count_runs",
    "create_run",
    "delete_run",
    "finish_unheld",
    "get_run",
    "list_runs",
    "note_object",
    "request_cancel",
    "request_cancels",
    "runs_with_object",
    "runs_without_object",
    "unfinished_runs",
]


@dataclass(frozen=True, slots=True)
class ObjectOfRun:
    """An unfinished run and the uid of its Run object."""

    run_id: str
    thread_id: str
    object_uid: str


async def get_run(db: Database, run_id: str, thread_id: str | None = None, user_id: str | None = None) -> RunRow:
    """One run, of this thread and user where they are given. Raises NotFound, Unavailable."""
    async with db.read() as connection:
        row = await _find(connection, _owned(runs.c.run_id == run_id, thread_id, user_id))
    if row is None:
        raise NotFound(f"Run with ID {run_id} not found.")
    return row


async def list_runs(
    db: Database,
    thread_id: str,
    user_id: str | None = None,
    limit: int = 10,
    offset: int = 0,
    status: RunState | None = None,
) -> list[RunRow]:
    """Runs of a thread, newest first; an unknown thread gives none. Raises Unavailable."""
    query = select(runs).where(_listed(thread_id, user_id, status)).order_by(runs.c.sequence.desc())
    async with db.read() as connection:
        rows = (await connection.execute(query.limit(limit).offset(offset))).mappings().all()
    return [run_row(row) for row in rows]


async def count_runs(db: Database, thread_id: str, user_id: str | None = None, status: RunState | None = None) -> int:
    """How many runs `list_runs` could list. Raises Unavailable."""
    async with db.read() as connection:
        count = select(func.count()).select_from(runs).where(_listed(thread_id, user_id, status))
        return (await connection.execute(count)).scalar_one()


async def note_object(db: Database, run_id: str, uid: str, now: datetime) -> None:
    """Keeps the uid of the Run object: one that had an object and lost it was deleted, which is a cancel."""
    async with db.single() as connection:
        values = {"object_uid": uid, "object_made_at": now}
        await connection.execute(update(runs).where(runs.c.run_id == run_id).values(values))


async def runs_without_object(db: Database, older_than: datetime) -> list[RunRow]:
    """Unfinished runs created before `older_than` that never had a Run object, oldest first, at most 500."""
    where = and_(UNFINISHED, runs.c.created_at < older_than, runs.c.object_uid.is_(None))
    return await _select(db, select(runs).where(where).order_by(runs.c.created_at).limit(500))


async def cancelled_runs(db: Database) -> list[RunRow]:
    """Unfinished runs whose row asks for a cancel, oldest first, at most 500."""
    where = and_(UNFINISHED, runs.c.cancel_action.is_not(None))
    return await _select(db, select(runs).where(where).order_by(runs.c.created_at).limit(500))


async def unfinished_runs(db: Database) -> list[RunRow]:
    """Every pending or running run, oldest first: where an embedded start goes on."""
    return await _select(db, select(runs).where(UNFINISHED).order_by(runs.c.created_at, runs.c.sequence))


async def runs_with_object(db: Database, made_before: datetime) -> list[ObjectOfRun]:
    """The unfinished runs whose Run object was made before `made_before`, in no order. Raises Unavailable."""
    where = and_(UNFINISHED, runs.c.object_uid.is_not(None), runs.c.object_made_at < made_before)
    query = select(runs.c.run_id, runs.c.thread_id, runs.c.object_uid).where(where)
    async with db.read() as connection:
        return [ObjectOfRun(*row) for row in (await connection.execute(query)).all()]


async def count_failures(db: Database) -> None:
    """Counts a failure of every running run: the one process that executed them all was killed. Raises Unavailable."""
    async with db.single() as connection:
        running = update(runs).where(UNFINISHED, runs.c.status == RunState.RUNNING)
        await connection.execute(running.values(failures=runs.c.failures + 1))


async def request_cancel(db: Database, run_id: str, action: CancelAction, reason: str = "") -> RunRow:
    """Marks a run for cancelling; a rollback is never weakened; a finished run is returned unchanged.

    Raises NotFound, Unavailable.
    """
    marked = _marked(runs.c.run_id == run_id, action, reason)
    async with db.single() as connection:
        row = (await connection.execute(marked)).mappings().one_or_none()
    return run_row(row) if row is not None else await get_run(db, run_id)


async def request_cancels(
    db: Database,
    *,
    user_id: str,
    thread_id: str | None,
    run_ids: Sequence[str] | None,
    states: Sequence[RunState],
    action: CancelAction,
) -> list[RunRow]:
    """Marks a user's unfinished runs in the same way, those of this thread, with these ids and states; gives their
    rows. Raises Unavailable."""
    where = _owned(runs.c.status.in_(states), thread_id, user_id)
    if run_ids is not None:
        where = and_(where, runs.c.run_id.in_(run_ids))
    async with db.single() as connection:
        rows = (await connection.execute(_marked(where, action, ""))).mappings().all()
    return sorted(map(run_row, rows), key=lambda run: run.created_at)


def _marked(where: ColumnElement[bool], action: CancelAction, reason: str) -> ReturningUpdate[Any]:
    stronger = case((runs.c.cancel_action == CancelAction.ROLLBACK, CancelAction.ROLLBACK), else_=action.value)
    values = {"cancel_action": stronger, "cancel_reason": reason}
    return update(runs).where(where, UNFINISHED).values(values).returning(*runs.c)


def _owned(where: ColumnElement[bool], thread_id: str | None, user_id: str | None) -> ColumnElement[bool]:
    if thread_id is not None:
        where = and_(where, runs.c.thread_id == thread_id)
    return where if user_id is None else and_(where, runs.c.user_id == user_id)


def _listed(thread_id: str, user_id: str | None, status: RunState | None) -> ColumnElement[bool]:
    where = _owned(runs.c.thread_id == thread_id, None, user_id)
    return where if status is None else and_(where, runs.c.status == status)


async def _find(connection: AsyncConnection, where: ColumnElement[bool]) -> RunRow | None:
    row = (await connection.execute(select(runs).where(where))).mappings().one_or_none()
    return None if row is None else run_row(row)


async def _select(db: Database, query: Select[Any]) -> list[RunRow]:
    async with db.read() as connection:
        return [run_row(row) for row in (await connection.execute(query)).mappings()]
