"""Creating a run: admission, its number, its row and the busy thread in one transaction.

Called by the gateway, and by the operator for hand-written Runs.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import bindparam, cast, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from runyard_api.admission import admit
from runyard_api.errors import AlreadyExists, NotFound
from runyard_api.payload import RunPayload
from runyard_api.states import RunState, Strategy, ThreadState
from runyard_store.database import Database
from runyard_store.rows import RunRow, run_row
from runyard_store.tables import UNFINISHED, runs, threads
from runyard_store.threads import insert_thread
from runyard_store.together import Together, bind, of, parameters
from runyard_store.urls import Kind

MISSING = "Thread or assistant not found."


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to admit. `thread_metadata` and `thread_config` are used if the thread is made here; `metadata` is the
    run's own. `object_uid` is set for hand-written Runs, whose object exists already. `not_before`: when it may start;
    None: at once."""

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
    not_before: datetime | None = None


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
    async with db.read() as connection:
        there = await connection.execute(select(runs).where(runs.c.run_id == new.run_id))
        row = there.mappings().one_or_none()
    if row is None or row["thread_id"] != new.thread_id or row["user_id"] != new.user_id:
        raise AlreadyExists(f"Run with ID {new.run_id} already exists.")
    return run_row(row)


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
        "not_before": new.not_before,
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
