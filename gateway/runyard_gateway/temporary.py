"""Deleting the threads of stateless runs some time after their end. Called by app.py every few seconds.

It goes by rows alone, so whoever dies when, some gateway deletes what is due; and the gateway is the part whose readers
may still want it: a client that reconnects finds log and result until then.
"""

from datetime import datetime

import structlog

from runyard_api.errors import Held, NotFound
from runyard_store.database import Database
from runyard_store.deletion import delete_idle_thread, expired_threads

log = structlog.get_logger(__name__)
AT_ONCE = 100


async def delete_expired(db: Database, ended_before: datetime) -> int:
    """Deletes threads one after the other until none is due, or none of those can be; gives their number.

    Raises Unavailable. Several gateways may do this at once: each thread is deleted by one of them.
    """
    deleted = 0
    while due := await expired_threads(db, ended_before, AT_ONCE):
        before = deleted
        for thread_id in due:
            try:
                await delete_idle_thread(db, thread_id)
            except (Held, NotFound) as error:  # another gateway was faster, or somebody has just used the thread
                log.debug("thread left", thread=thread_id, why=error.reason)
            else:
                deleted += 1
        if deleted == before:  # what can't be deleted now isn't asked for again and again
            break
    return deleted
