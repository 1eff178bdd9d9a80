"""The graph's side of a run's events: numbers them, and hands them to the server loop in lists.

Used on the graph thread by `execution.py`; the server loop takes what has gathered (`feed.py`). No event costs a
crossing of its own: one wake-up carries all that came since the last.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from runyard_api.events import Event, EventId

_MOST_BEHIND = 1024 * 1024
"""Bytes that the log may be behind before the graph is no longer pulled, which stops it at its next boundary."""


class Emitter:
    """Events of one attempt, in order. `emit` and `room` are for the graph thread, `take` and `logged` the server's."""

    def __init__(
        self, *, base: int, attempt: int, wake: Callable[[], object], loop_call: Callable[..., object]
    ) -> None:
        """`wake` makes the server loop call `take` soon; `loop_call` calls a function on the graph loop."""
        self._base, self._attempt = base, attempt
        self._wake, self._loop_call = wake, loop_call
        self._out: deque[Event] = deque()
        self._woken = False
        self._n = 0
        self._produced = 0
        self._logged = 0
        self._room: asyncio.Event | None = None
        self._lock = threading.Lock()

    def emit(self, mode: str, ns: tuple[str, ...], data: bytes) -> None:
        """Adds one event; `data` is a JSON document."""
        self._n += 1
        self._produced += len(data)
        self._out.append(Event(EventId.of(self._base, self._attempt, self._n), mode, ns, data))
        # `take` clears the flag before it empties the queue: an event that finds it set is still taken.
        if not self._woken:
            self._woken = True
            self._wake()

    def take(self) -> list[Event]:
        """Everything emitted since the last call."""
        self._woken = False
        taken: list[Event] = []
        while self._out:
            taken.append(self._out.popleft())
        return taken

    def logged(self, size: int) -> None:
        """Says that events with `size` bytes of data are in the log."""
        self._logged += size
        with self._lock:
            room, self._room = (self._room, None) if not self.behind else (None, self._room)
        if room is not None:
            self._loop_call(room.set)

    async def room(self) -> None:
        """Waits while the log is too far behind."""
        if not self.behind:
            return
        with self._lock:
            if not self.behind:
                return
            room = self._room = asyncio.Event()
        await room.wait()

    @property
    def behind(self) -> bool:
        """Whether the graph should wait in `room` before it is pulled again."""
        return self._produced - self._logged > _MOST_BEHIND
