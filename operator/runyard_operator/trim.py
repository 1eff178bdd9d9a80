"""Keeps finished Run objects within their number, whatever the time that each has left: the oldest go first. Called by
`app`. Their threads' reconciles delete them, after their ends are in the rows for sure.
"""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime

from runyard_api.run import Run
from runyard_operator.world import World, thread_of

EVERY_SECONDS = 5.0
AT_ONCE = 1000
"""Objects that are marked in one look at most; those that are left over are marked in the next."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


async def trim_forever(world: Callable[[], World]) -> None:
    """Looks every few seconds, for as long as `world()` leads."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        if world().leading:
            trim(world())


def trim(world: World) -> None:
    """Marks the oldest finished Runs over the limit as surplus and wakes their threads."""
    finished = world.caches.runs.group("finished", world.settings.agents_namespace, "")
    over = len(finished) - world.settings.max_finished_runs
    for run in heapq.nsmallest(min(over, AT_ONCE), finished, key=_ended):
        world.memory.surplus.add(run.run_id)
        world.run_queue.add(thread_of(run))


def _ended(run: Run) -> datetime:
    return run.status.completion_time or _EARLIEST
