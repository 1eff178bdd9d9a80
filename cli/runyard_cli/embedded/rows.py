"""The dispatcher's view of the runs in the database; made by `process`, calls `runyard_store.runs`."""

from collections.abc import Callable, Sequence
from datetime import datetime

from runyard_api.errors import NotFound
from runyard_api.internal import RunError
from runyard_api.states import RunState
from runyard_store.database import Database
from runyard_store.runs import RunRow, delete_run, finish_unheld, get_run, unfinished_runs


class StoredRows:
    """`dispatcher.Rows` on an open database."""

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
