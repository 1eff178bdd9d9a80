"""The dispatcher's view of the runs in the database: `StoredRows`, made by `process`, and what a row says of a run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from runyard_api.errors import NotFound
from runyard_api.internal import RunError
from runyard_api.states import RunState
from runyard_cli.embedded.board import Entry
from runyard_store.database import Database
from runyard_store.runs import RunRow, delete_run, finish_unheld, get_run, unfinished_runs


class StoredRows:
    """`ports.Rows` on an open database."""

    def __init__(self, db: Database, now: Callable[[], datetime]) -> None:
        self._db, self._now = db, now

    async def get(self, run_id: str) -> RunRow:
        return await get_run(self._db, run_id)

    async def unfinished(self) -> Sequence[RunRow]:
        return await unfinished_runs(self._db)

    async def finish(self, run_id: str, state: RunState, error: RunError | None) -> RunRow | None:
        body = {"error": error.error, "message": error.message} if error else None
        try:
            return await finish_unheld(self._db, run_id, state, body, self._now())
        except NotFound:
            return None

    async def roll_back(self, run_id: str) -> None:
        await delete_run(self._db, run_id, self._now())


def entry_of(row: RunRow) -> Entry:
    """The entry on the board of an unfinished run."""
    return Entry(
        run_id=row.run_id,
        thread_id=row.thread_id,
        graph_id=row.graph_id,
        sequence=row.sequence,
        strategy=row.multitask_strategy,
        attempt=row.attempt,
        failures=row.failures,
        cancel=row.cancel_action,
        cancel_reason=row.cancel_reason or "",
        not_before=row.not_before,
    )


def as_row_says(entry: Entry, row: RunRow) -> Entry:
    """The entry of a run that has ended in its row."""
    return replace(entry, state=row.status, error=error_of(row), bound=False)


def error_of(row: RunRow) -> RunError | None:
    """What the row says went wrong."""
    return RunError.model_validate(row.error) if row.error else None
