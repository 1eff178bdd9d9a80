"""Threads' turns: one worker per thread at a time, retries that slow down, one timer for what is due later. Called by
`dispatcher`, which does the work of a turn."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from runyard_api.errors import RunyardError
from runyard_api.retry import pause

log = structlog.get_logger()
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds until a thread is looked at again after the first, second, … failure in a row."""


class Turns:
    """Calls `turn` with a thread's id whenever the thread has been woken. One that raises is tried again."""

    def __init__(self, turn: Callable[[str], Awaitable[None]]) -> None:
        self._turn = turn
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = False

    def wake(self, thread_id: str) -> None:
        """Lets a worker look at the thread now, or again if one is at it."""
        if self._stopping:
            return
        if thread_id in self._workers:
            self._again.add(thread_id)
            return
        self._workers[thread_id] = asyncio.create_task(self._work(thread_id))

    def wake_in(self, thread_id: str, seconds: float) -> None:
        """Wakes the thread then, if it isn't to be woken sooner."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        if (known := self._timers.get(thread_id)) is not None:
            if known.when() <= when:
                return
            known.cancel()
        self._timers[thread_id] = loop.call_at(when, self._due, thread_id)

    def failed(self, thread_id: str, why: str) -> None:
        """Counts a failure of the thread and wakes it after a pause that grows with their number."""
        failures = self._failures[thread_id] = self._failures.get(thread_id, 0) + 1
        seconds = pause(PAUSES, failures)
        log.debug("thread waits", thread=thread_id, seconds=seconds, why=why)
        self.wake_in(thread_id, seconds)

    def went_well(self, thread_id: str) -> None:
        """The next failure is the first again."""
        self._failures.pop(thread_id, None)

    async def stop(self) -> None:
        """Ends the workers; nothing is woken any more."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        workers = [*self._workers.values()]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _due(self, thread_id: str) -> None:
        del self._timers[thread_id]
        self.wake(thread_id)

    async def _work(self, thread_id: str) -> None:
        try:
            await self._turn(thread_id)
        except RunyardError as error:
            self.failed(thread_id, error.detail)
        except Exception:
            log.exception("thread's turn failed", thread=thread_id)
            self.failed(thread_id, "a bug, see the traceback")
        finally:
            del self._workers[thread_id]
        if thread_id in self._again:
            self._again.discard(thread_id)
            self.wake(thread_id)
