"""The end of runs that no runtime holds, and the removal of runs. Called by the operator, the gateway and the embedded
dispatcher."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import NotFound
from runyard_api.states import RunState
from runyard_store.database import Database
from runyard_store.ending import fence_out, leave_thread, lock_in_order, remove_run
from runyard_store.pre_run import PreRun, restore
from runyard_store.rows import RunRow
from runyard_store.tables import runs, thread_leases


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
