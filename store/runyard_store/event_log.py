"""The event log: one compressed row per batch. The runtime appends under its lease; gateways read."""

from collections.abc import Sequence

from runyard_api.events import Event, EventId
from runyard_store.database import Database


async def append(db: Database, run_id: str, thread_id: str, epoch: int, events: Sequence[Event]) -> None:
    """Adds one batch of events, oldest first, in one statement; repeating it with the same events is harmless.

    Raises Fenced, Unavailable.
    """
    raise NotImplementedError


async def read(db: Database, run_id: str, after: EventId | None = None, limit_batches: int = 100) -> list[Event]:
    """Events after `after` (exclusive; None: from the first), oldest first, of at most `limit_batches` batches.

    An empty list means the log has nothing later. Raises Unavailable.
    """
    raise NotImplementedError
