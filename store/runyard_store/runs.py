"""Runs: admission and creation, reading, cancelling, and the end of runs that no runtime holds.

Called by the gateway (create, read), the operator (hand-written Runs, unheld ends) and the embedded dispatcher.
Rows of `threads` count their unfinished runs: every change of a run's finished-ness changes the count in the same
transaction, after the rows before it in this order: lease, run, thread.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.admission import admit
from runyard_api.errors import AlreadyExists, NotFound
from runyard_api.payload import RunPayload
from runyard_api.states import CancelAction, RunState, Strategy, ThreadState
from runyard_store.database import Database
from runyard_store.rows import RunRow, ThreadRow, resting_status, run_row, thread_row
from runyard_store.tables import UNFINISHED, event_batches, runs, thread_leases, threads
from runyard_store.threads import insert_thread

__all__ = [
    "NewRun",
    "RunRow",
    "count_runs",
    "create_run",
    "delete_run",
    "finish_unheld",
    "get_run",
    "list_runs",
    "note_object",
    "request_cancel",
    "runs_without_object",
    "unfinished_runs",
]

MISSING = "Thread or assistant not found."


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to admit. `thread_metadata` and `thread_config` are used if the thread is made here; `metadata` is the run's
    own. `object_uid` is set for hand-written Runs, whose object exists already."""

    run_id: str
    thread_id: str
    user_id: str
    assistant_id: str
    graph_id: str
    agent_name: str
    payload: RunPayload
    metadata: dict[str, Any] = field(default_factory=dict)
    multitask_strategy: Strategy = Strategy.ENQUEUE
    on_disconnect: Literal["cancel", "continue"] = "continue"
    if_not_exists: Literal["create", "reject"] = "reject"
    temporary: bool = False
    thread_metadata: dict[str, Any] = field(default_factory=dict)
    thread_config: dict[str, Any] = field(default_factory=dict)
    object_uid: str | None = None


async def create_run(db: Database, new: NewRun, now: datetime) -> RunRow:
    """Admits, numbers and stores a run and marks its thread busy, in one transaction; a repeated run id of the same
    thread returns the row there is.

    Raises ThreadBusy (reject on a busy thread), NotFound (no such thread of this user), AlreadyExists, Invalid,
    Unavailable.
    """
    async with db.begin() as connection:
        thread = await _locked_thread(db, connection, new, now)
        unfinished = await _unfinished_sequences(connection, new) if thread.unfinished else {}
        if new.run_id in unfinished:
            return await _known_run(connection, new)
        admission = admit(new.multitask_strategy, last_sequence=thread.run_seq, unfinished=sorted(unfinished.values()))
        values = _run_values(new, admission.sequence, now)
        if not await _insert_run(db, connection, values):
            return await _known_run(connection, new)
        busy = _busy_values(thread, new, admission.sequence, now)
        await connection.execute(update(threads).where(threads.c.thread_id == new.thread_id).values(busy))
    return run_row(values)


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


async def unfinished_runs(db: Database) -> list[RunRow]:
    """Every pending or running run, oldest first: where an embedded start goes on."""
    return await _select(db, select(runs).where(UNFINISHED).order_by(runs.c.created_at, runs.c.sequence))


async def request_cancel(db: Database, run_id: str, action: CancelAction, reason: str = "") -> RunRow:
    """Marks a run for cancelling; a rollback is never weakened; a finished run is returned unchanged.

    Raises NotFound, Unavailable.
    """
    stronger = case((runs.c.cancel_action == CancelAction.ROLLBACK, CancelAction.ROLLBACK), else_=action.value)
    marked = (
        update(runs)
        .where(runs.c.run_id == run_id, UNFINISHED)
        .values(cancel_action=stronger, cancel_reason=reason)
        .returning(*runs.c)
    )
    async with db.single() as connection:
        row = (await connection.execute(marked)).mappings().one_or_none()
    return run_row(row) if row is not None else await get_run(db, run_id)


async def finish_unheld(
    db: Database, run_id: str, state: RunState, error: dict[str, str] | None, now: datetime
) -> RunRow:
    """Ends a run that no runtime holds, fences out one that might, and puts the thread's status back.

    Returns the row as it is then: the first terminal write wins, so its state may be another. Raises NotFound,
    Unavailable.
    """
    async with db.begin() as connection:
        run, thread = await _lock_in_order(connection, run_id)
        if run.status.finished:
            return run
        await _fence_out(connection, run)
        ended = {"status": state, "error": error, "updated_at": now, "ended_at": now}
        await connection.execute(update(runs).where(runs.c.run_id == run_id).values(ended))
        failed = error if state in (RunState.ERROR, RunState.TIMEOUT) else None
        await _leave_thread(connection, thread, failed, now)
        row = await _find(connection, runs.c.run_id == run_id)
    assert row is not None
    return row


async def delete_run(db: Database, run_id: str, now: datetime) -> None:
    """Removes a run and its events; an unfinished one is fenced out first. Nothing happens if it doesn't exist."""
    async with db.begin() as connection:
        try:
            run, thread = await _lock_in_order(connection, run_id)
        except NotFound:
            return
        if not run.status.finished:
            await _fence_out(connection, run)
            await _leave_thread(connection, thread, None, now)
        await connection.execute(delete(event_batches).where(event_batches.c.run_id == run_id))
        await connection.execute(delete(runs).where(runs.c.run_id == run_id))


@dataclass(frozen=True)
class _Locked:
    """What admission needs of a locked thread; its big columns stay in the database."""

    user_id: str
    metadata: dict[str, Any]
    run_seq: int = 0
    unfinished: int = 0


_LOCK_THREAD = (
    select(threads.c.user_id, threads.c.metadata, threads.c.run_seq, threads.c.unfinished)
    .where(threads.c.thread_id == bindparam("of_thread"))
    .with_for_update()
)


async def _locked_thread(db: Database, connection: AsyncConnection, new: NewRun, now: datetime) -> _Locked:
    """The thread, locked until the transaction ends; made if the run says so. Raises NotFound."""
    row = (await connection.execute(_LOCK_THREAD, {"of_thread": new.thread_id})).one_or_none()
    if row is None and new.if_not_exists == "create":
        made = await insert_thread(
            db,
            connection,
            thread_id=new.thread_id,
            user_id=new.user_id,
            metadata=new.thread_metadata,
            config=new.thread_config,
            now=now,
        )
        if made:
            return _Locked(new.user_id, new.thread_metadata)
        row = (await connection.execute(_LOCK_THREAD, {"of_thread": new.thread_id})).one_or_none()
    if row is None or row.user_id != new.user_id:
        raise NotFound(MISSING)
    return _Locked(row.user_id, row.metadata, row.run_seq, row.unfinished)


async def _unfinished_sequences(connection: AsyncConnection, new: NewRun) -> dict[str, int]:
    """Run id → sequence of the thread's unfinished runs, read after the lock was taken."""
    query = select(runs.c.run_id, runs.c.sequence).where(runs.c.thread_id == new.thread_id, UNFINISHED)
    return {row.run_id: row.sequence for row in await connection.execute(query)}


async def _known_run(connection: AsyncConnection, new: NewRun) -> RunRow:
    row = await _find(connection, runs.c.run_id == new.run_id)
    if row is None or row.thread_id != new.thread_id or row.user_id != new.user_id:
        raise AlreadyExists(f"Run with ID {new.run_id} already exists.")
    return row


async def _insert_run(db: Database, connection: AsyncConnection, values: dict[str, Any]) -> bool:
    """Adds the row; False if its run id is taken."""
    add = (postgresql.insert if db.kind == "postgresql" else sqlite.insert)(runs)
    result = await connection.execute(add.on_conflict_do_nothing(index_elements=["run_id"]), values)
    return result.rowcount == 1


def _run_values(new: NewRun, sequence: int, now: datetime) -> dict[str, Any]:
    return {
        "run_id": new.run_id,
        "thread_id": new.thread_id,
        "user_id": new.user_id,
        "assistant_id": new.assistant_id,
        "graph_id": new.graph_id,
        "agent_name": new.agent_name,
        "sequence": sequence,
        "status": RunState.PENDING,
        "created_at": now,
        "updated_at": now,
        "started_at": None,
        "ended_at": None,
        "attempt": 0,
        "failures": 0,
        "event_base": 0,
        "metadata": new.metadata,
        "payload": new.payload.model_dump(mode="json"),
        "multitask_strategy": new.multitask_strategy,
        "on_disconnect": new.on_disconnect,
        "temporary": new.temporary,
        "object_uid": new.object_uid,
        "object_made_at": now if new.object_uid else None,
        "cancel_action": None,
        "cancel_reason": None,
        "result": None,
        "error": None,
    }


def _busy_values(thread: _Locked, new: NewRun, sequence: int, now: datetime) -> dict[str, Any]:
    return {
        "run_seq": sequence,
        "unfinished": thread.unfinished + 1,
        "status": ThreadState.BUSY,
        "updated_at": now,
        "graph_id": new.graph_id,
        "metadata": thread.metadata | {"graph_id": new.graph_id, "assistant_id": new.assistant_id},
    }


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


async def _lock_in_order(connection: AsyncConnection, run_id: str) -> tuple[RunRow, ThreadRow]:
    """The run and its thread, with lease, run and thread locked in the order every writer keeps. Raises NotFound."""
    lease_and_run = (
        select(runs)
        .join(thread_leases, thread_leases.c.thread_id == runs.c.thread_id)
        .where(runs.c.run_id == run_id)
        .with_for_update(of=[thread_leases, runs])
    )
    row = (await connection.execute(lease_and_run)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"Run with ID {run_id} not found.")
    thread = select(threads).where(threads.c.thread_id == row["thread_id"]).with_for_update()
    return run_row(row), thread_row((await connection.execute(thread)).mappings().one())


async def _fence_out(connection: AsyncConnection, run: RunRow) -> None:
    """Takes the lease from the run's attempt, if it has it: nothing it writes counts from here on."""
    await connection.execute(
        update(thread_leases)
        .where(thread_leases.c.thread_id == run.thread_id, thread_leases.c.run_id == run.run_id)
        .values(epoch=thread_leases.c.epoch + 1, holder=None, run_id=None, pre_run=None)
    )


async def _leave_thread(
    connection: AsyncConnection, thread: ThreadRow, error: dict[str, str] | None, now: datetime
) -> None:
    """One unfinished run less; without any left, the thread rests in the state its last run left, or in `error`."""
    left = thread.unfinished - 1
    thread = replace(thread, error=error or thread.error)
    await connection.execute(
        update(threads)
        .where(threads.c.thread_id == thread.thread_id)
        .values(
            unfinished=left,
            status=ThreadState.BUSY if left else resting_status(thread),
            error=thread.error,
            updated_at=now,
        )
    )
