"""The graphs' own thread: an event loop and a thread pool apart from the server's, so that a graph that blocks its loop
silences neither health nor streams.

Started and stopped by `runtime.py`; `attempt.py` and `threads.py` submit to it from the server loop.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import structlog
import uvloop

from runyard_api.errors import Unavailable

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
_THREADS_PER_SLOT = 4
_counter: contextvars.ContextVar["ThreadCount | None"] = contextvars.ContextVar("runyard_thread_count", default=None)


class ThreadCount:
    """How many threads of the pool work for one run: sync code can't be stopped, only waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = 0
        self._idle: list[Callable[[], object]] = []

    def adopt(self) -> None:
        """Counts from now on what the current context (a run's task and all it starts) submits to the pool."""
        _counter.set(self)

    def started(self) -> None:
        with self._lock:
            self._busy += 1

    def ended(self, _: "Future[Any] | None" = None) -> None:
        with self._lock:
            self._busy -= 1
            told, self._idle = (self._idle, []) if self._busy == 0 else ([], self._idle)
        for tell in told:
            tell()

    async def idle(self) -> None:
        """Waits, on any loop, until no thread works for the run."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        with self._lock:
            if self._busy == 0:
                return
            self._idle.append(lambda: loop.call_soon_threadsafe(done.set))
        await done.wait()


class GraphPool(ThreadPoolExecutor):
    """The graph loop's default executor; counts the threads of each run."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> "Future[_T]":
        count = _counter.get()
        if count is None:
            return super().submit(fn, *args, **kwargs)
        count.started()
        try:
            future = super().submit(fn, *args, **kwargs)
        except RuntimeError:  # the pool is shut down
            count.ended()
            raise
        future.add_done_callback(count.ended)
        return future


class GraphLoop:
    """A thread that runs one event loop until `stop`."""

    def __init__(self, slots: int) -> None:
        self._pool = GraphPool(max_workers=max(16, _THREADS_PER_SLOT * slots), thread_name_prefix="graph")
        self._loop = uvloop.new_event_loop()
        self._loop.set_default_executor(self._pool)
        self._thread = threading.Thread(target=self._serve, name="graph-loop", daemon=True)
        self._ending = False

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def ending(self) -> bool:
        """Whether `stop` was called: tasks are cancelled then by nobody's wish."""
        return self._ending

    def submit(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Starts a coroutine on the graph loop, from any thread. Raises Unavailable once the loop has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise Unavailable("the graph loop has stopped") from error

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine on the graph loop and waits for it on the calling loop; cancelling the wait cancels it."""
        return await asyncio.wrap_future(self.submit(work))

    async def finish(self, work: Coroutine[Any, Any, object], patience: float) -> None:
        """Runs the loop's last coroutine, for at most `patience` seconds: a graph may block the loop for ever."""
        try:
            async with asyncio.timeout(patience):
                await self.run(work)
        except TimeoutError:
            _log.warning("a graph blocks the graph loop, what is open there stays open")

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Calls a function soon on the graph loop, from any thread; nothing happens once the loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    async def stop(self, patience: float = 5.0) -> None:
        """Cancels what is left, ends the loop and waits up to `patience` seconds for its thread.

        Threads of sync code aren't waited for: the process ends without them.
        """
        self._ending = True
        if self.alive:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, patience)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._ending:
                self._serve_once()
            self._end_tasks()
        finally:
            self._loop.close()

    def _serve_once(self) -> None:
        """Until `stop`; or until user code stops the loop, or lets SystemExit or KeyboardInterrupt out of a task: that
        ends its run, but must not end the other runs."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            _log.warning("user code tried to end the process", error=type(error).__name__)

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=2.0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
