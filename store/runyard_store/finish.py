"""The end of a run that a runtime executed: one fenced transaction. Called by the runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runyard_api.events import Event
from runyard_api.states import RunState, ThreadState
from runyard_store.database import Database
from runyard_store.pre_run import PreRun


@dataclass(frozen=True, kw_only=True)
class Finish:
    """How a run ended. JSON fields take values or JSON bytes. `result`: final values with `__interrupt__`; `values`,
    `interrupts`, `head`: what the thread row shows from now on; `thread_status`: its status if no other run waits;
    `error`: {error, message} of a failed run; `last_events`: what the log lacks, with `end`."""

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
    """Writes row, thread, last events and releases the lease, all or nothing; False if the row was terminal already.

    Raises Fenced (another attempt has the thread), Unavailable.
    """
    raise NotImplementedError


async def finish_rollback(
    db: Database, *, run_id: str, thread_id: str, epoch: int, pre_run: PreRun, now: datetime
) -> None:
    """Ends a run as if it had never been: restores the pre-run point, removes row and events, releases the lease.

    Raises Fenced, Unavailable.
    """
    raise NotImplementedError
