"""Runs: admission and creation, reading, cancelling, and the end of runs that no runtime holds.

Called by the gateway (create, read), the operator (hand-written Runs, unheld ends) and the embedded dispatcher.
Rows of `threads` count their unfinished runs: every change of a run's finished-ness changes the count in the same
transaction (ending.py, finish.py).
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, cast, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from runyard_api.admission import admit
from runyard_api.errors import AlreadyExists, NotFound
from runyard_api.payload import RunPayload
from runyard_api.states import CancelAction, RunState, Strategy, ThreadState
from runyard_store.database import Database
from runyard_store.ending import fence_out, leave_thread, lock_in_order, remove_run
from runyard_store.pre_run import PreRun, restore
from runyard_store.rows import RunRow, run_row
from runyard_store.tables import UNFINISHED, runs, thread_leases, threads
from runyard_store.threads import insert_thread
from runyard_store.together import Together, bind, of, parameters
from runyard_store.urls import Kind

__all__ = [
    "NewRun",
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
    "runs_without_object",
    "unfinished_runs",
]

MISSING = "Thread or assistant not found."


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to admit. `thread_metadata` and `thread_config` are used if the thread is made here; `metadata` is the
    run's own. `object_uid` is set for hand-written Runs, whose object exists already."""

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
    try:
        # On Postgres one round trip instead of four: a third of what creating a run costs the gateway.
        idle = db.kind == "postgresql" and new.if_not_exists == "reject"
        return (await _admit_on_idle(db, new, now) if idle else None) or await _admit(db, new, now)
    except _RunIdTaken:
        return await _known_run(db, new)


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


async def count_failures(db: Database) -> None:
    """Counts a failure of every running run: the one process that executed them all was killed. Raises Unavailable."""
    async with db.single() as connection:
        running = update(runs).where(UNFINISHED, runs.c.status == RunState.RUNNING)
        await connection.execute(running.values(failures=runs.c.failures + 1))


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
    """Ends a run that no runtime holds, fences out one that might, and puts the thread's status back. If a runtime
    executed it before, the thread's head is unknown from here on.

    Returns the row as it is then: the first terminal write wins, so its state may be another. Raises NotFound,
    Unavailable.
    """
    async with db.begin() as connection:
        run, thread = await lock_in_order(connection, run_id)
        if run.status.finished:
            return run
        await fence_out(connection, run)
        ended = {"status": state, "error": error, "updated_at": now, "ended_at": now}
        await connection.execute(update(runs).where(runs.c.run_id == run_id).values(ended))
        failed = error if state in (RunState.ERROR, RunState.TIMEOUT) else None
        await leave_thread(connection, thread, failed, now, head_unknown=run.attempt > 0)
    return replace(run, status=state, error=error, updated_at=now, ended_at=now)


async def delete_run(db: Database, run_id: str, now: datetime) -> None:
    """Removes a run and its events. An unfinished one is rolled back: fenced out, its checkpoints undone if it made
    any. Nothing happens if the run doesn't exist. Raises Unavailable.
    """
    async with db.begin() as connection:
        try:
            run, thread = await lock_in_order(connection, run_id)
        except NotFound:
            return
        if not run.status.finished:
            await _undo(db, connection, run)
            await leave_thread(connection, thread, None, now)
        await remove_run(connection, run_id)


async def _undo(db: Database, connection: AsyncConnection, run: RunRow) -> None:
    held = select(thread_leases.c.pre_run).where(
        thread_leases.c.thread_id == run.thread_id, thread_leases.c.run_id == run.run_id
    )
    lease = (await connection.execute(held)).one_or_none()
    if lease is not None:
        await restore(db.kind, connection, run.thread_id, PreRun.from_json(lease.pre_run))
        await fence_out(connection, run)


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


async def _admit(db: Database, new: NewRun, now: datetime) -> RunRow:
    async with db.begin() as connection:
        thread = await _locked_thread(db, connection, new, now)
        unfinished = await _unfinished_sequences(connection, new) if thread.unfinished else {}
        if new.run_id in unfinished:
            raise _RunIdTaken
        admission = admit(new.multitask_strategy, last_sequence=thread.run_seq, unfinished=sorted(unfinished.values()))
        values = _run_values(new, admission.sequence, now)
        busy = _busy_values(thread, new, admission.sequence, now)
        bound = {"of_thread": new.thread_id, **parameters(runs, **values), **parameters(threads, **busy)}
        added, _ = await _ADD_RUN[db.kind].execute(db.kind, connection, bound)
        if not added:
            raise _RunIdTaken
    return run_row(values)


async def _admit_on_idle(db: Database, new: NewRun, now: datetime) -> RunRow | None:
    """A run on a thread without unfinished runs: every strategy is admitted there. None: it isn't such a thread."""
    values, thread = _run_values(new, 0, now), _Locked(new.user_id, {})
    bound = {
        "of_thread": new.thread_id,
        "of_user": new.user_id,
        **parameters(runs, **values),
        **parameters(threads, **_busy_values(thread, new, 0, now)),
    }
    try:
        async with db.single() as connection:
            sequence = (await connection.execute(_ADD_ON_IDLE, bound)).scalar_one_or_none()
    except IntegrityError as error:
        raise _RunIdTaken from error
    return None if sequence is None else run_row({**values, "sequence": sequence})


class _RunIdTaken(Exception):
    """Rolls the transaction back: a run with this id was created before."""


async def _known_run(db: Database, new: NewRun) -> RunRow:
    row = await get_run(db, new.run_id)
    if row.thread_id != new.thread_id or row.user_id != new.user_id:
        raise AlreadyExists(f"Run with ID {new.run_id} already exists.")
    return row


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


_BUSY_COLUMNS = ("run_seq", "unfinished", "status", "updated_at", "graph_id", "metadata")


def _add_run(kind: Kind) -> Together:
    add = postgresql.insert if kind == "postgresql" else sqlite.insert
    row = bind(runs, *(c.name for c in runs.c))
    return Together(
        add(runs).values(row).on_conflict_do_nothing(index_elements=["run_id"]).returning(runs.c.run_id),
        update(threads)
        .where(threads.c.thread_id == bindparam("of_thread"))
        .values(bind(threads, *_BUSY_COLUMNS))
        .returning(threads.c.thread_id),
    )


def _add_on_idle() -> ReturningInsert[tuple[int]]:
    """Takes the thread's next sequence if it has no unfinished run, and adds the run with it."""
    busy = {**bind(threads, *_BUSY_COLUMNS), "run_seq": threads.c.run_seq + 1, "unfinished": 1}
    added = cast(of(threads, "metadata"), postgresql.JSONB)
    taken = (
        update(threads)
        .where(
            threads.c.thread_id == bindparam("of_thread"),
            threads.c.user_id == bindparam("of_user"),
            threads.c.unfinished == 0,
        )
        .values({**busy, "metadata": threads.c.metadata.op("||")(added)})
        .returning(threads.c.run_seq)
        .cte("taken")
    )
    row = {**bind(runs, *(c.name for c in runs.c)), "sequence": taken.c.run_seq}
    return insert(runs).from_select(list(row), select(*row.values())).returning(runs.c.sequence)


_ADD_ON_IDLE = _add_on_idle()
_ADD_RUN: dict[Kind, Together] = {"postgresql": _add_run("postgresql"), "sqlite": _add_run("sqlite")}


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
