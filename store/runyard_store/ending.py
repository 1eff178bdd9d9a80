"""Steps shared by the ways a run ends without its runtime's own finish: used by unheld.py and finish.py inside their
transactions.

Every writer locks in one order: lease, run, thread. Creating a run locks the thread alone.
"""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard_api.errors import NotFound
from runyard_api.states import ThreadState
from runyard_store.rows import UNKNOWN_HEAD, RunRow, ThreadRow, resting_status, run_row, thread_row
from runyard_store.tables import event_batches, runs, thread_leases, threads


async def lock_in_order(connection: AsyncConnection, run_id: str) -> tuple[RunRow, ThreadRow]:
    """The run and its thread, with lease, run and thread locked until the transaction ends. Raises NotFound."""
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


async def fence_out(connection: AsyncConnection, run: RunRow) -> None:
    """Takes the lease from the run's attempt, if it has it: nothing it writes counts from here on."""
    await connection.execute(
        update(thread_leases)
        .where(thread_leases.c.thread_id == run.thread_id, thread_leases.c.run_id == run.run_id)
        .values(epoch=thread_leases.c.epoch + 1, holder=None, run_id=None, pre_run=None)
    )


async def leave_thread(
    connection: AsyncConnection,
    thread: ThreadRow,
    error: dict[str, str] | None,
    now: datetime,
    *,
    head_unknown: bool = False,
) -> None:
    """One unfinished run less; without any left, the thread rests as its last run left it, or in `error`.

    `head_unknown`: the run may have written checkpoints that the row doesn't show, so only a pod can tell the state.
    """
    left = thread.unfinished - 1
    thread = replace(thread, error=error or thread.error)
    await connection.execute(
        update(threads)
        .where(threads.c.thread_id == thread.thread_id)
        .values(
            unfinished=left,
            status=ThreadState.BUSY if left else resting_status(thread),
            error=thread.error,
            head=UNKNOWN_HEAD if head_unknown else thread.head,
            updated_at=now,
        )
    )


async def remove_run(connection: AsyncConnection, run_id: str) -> None:
    """Deletes the row and its events."""
    await connection.execute(delete(event_batches).where(event_batches.c.run_id == run_id))
    await connection.execute(delete(runs).where(runs.c.run_id == run_id))
