"""Events of a run that this pod doesn't hold, read from the log. Used by the events route."""

from collections.abc import AsyncGenerator

from runyard_api.events import EventId
from runyard_store import event_log
from runyard_store.database import Database
from runyard_store.runs import get_run


async def stored_events(db: Database, run_id: str, after: EventId | None, *, live: bool) -> AsyncGenerator[bytes, None]:
    """Lines of what the log has after `after`, then the end, whether or not the run has ended; nothing if only live
    ones are wanted. Raises NotFound (no such run) and Unavailable on the first step."""
    await get_run(db, run_id)
    while not live:
        events = await event_log.read(db, run_id, after)
        if not events:
            return
        yield b"".join(event.line() for event in events)
        after = events[-1].id
