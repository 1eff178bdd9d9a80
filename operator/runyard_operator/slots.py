"""Which pod a run may go to, and who is next when all are full: slots per pod, one queue per Agent. Pure state.

The pod's answer is truth: a reservation only bridges the time between our decision and what the pod reports. Used by
`links` (what pods hold), `runs.apply` (reserves, releases) and the wake-up of waiting threads.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from runyard_operator.workqueue import Key


@dataclass
class PodSlots:
    """Slots of one pod. `full`: it refused a run since it last reported its load. `left`: runs that it may still take,
    by its own last word and what it took since; None: any number. `most`: slots in use at the same time since that was
    last asked for."""

    capacity: int = 0
    running: set[str] = field(default_factory=set)
    reserved: set[str] = field(default_factory=set)
    full: bool = False
    left: int | None = None
    most: int = 0

    @property
    def busy(self) -> int:
        return len(self.running | self.reserved)

    @property
    def free(self) -> int:
        if self.full:
            return 0
        free = self.capacity - self.busy
        if self.left is not None:
            free = min(free, self.left - len(self.reserved - self.running))
        return max(0, free)

    @property
    def spent(self) -> bool:
        """It took as many runs as it may."""
        return self.left is not None and self.left <= 0

    def reserve(self, run_id: str) -> None:
        self.reserved.add(run_id)
        self.most = max(self.most, self.busy)

    def run(self, run_id: str) -> None:
        """The pod has the run, which ends its reservation."""
        self.reserved.discard(run_id)
        self.running.add(run_id)
        self.most = max(self.most, self.busy)

    def take_most(self) -> int:
        """The most slots in use at the same time since the last call."""
        most, self.most = max(self.most, self.busy), self.busy
        return most

    def took_one(self) -> None:
        """It said that it took a run: one less, until it tells its load again."""
        if self.left is not None:
            self.left -= 1


def least_loaded(pods: Iterable[tuple[str, PodSlots]]) -> str | None:
    """The name of the pod with the most free slots (by name among equals); None if none is free."""
    free = [(-slots.free, name) for name, slots in pods if slots.free]
    return min(free)[1] if free else None


class Waiting:
    """Threads that wait for a slot of an Agent, first come first served.

    `changed` is called with the Agent when its queue became longer or empty; `now` dates the places.
    """

    def __init__(self, *, now: Callable[[], datetime], changed: Callable[[Key], None]) -> None:
        self._now, self._changed = now, changed
        self._queues: dict[Key, dict[Key, datetime]] = {}

    def join(self, agent: Key, thread: Key) -> None:
        """Takes a place at the end, unless the thread has one."""
        queue = self._queues.setdefault(agent, {})
        if thread not in queue:
            queue[thread] = self._now()
            self._changed(agent)

    def leave(self, agent: Key, thread: Key) -> None:
        queue = self._queues.get(agent)
        if queue is not None and thread in queue:
            del queue[thread]
            if not queue:
                del self._queues[agent]
                self._changed(agent)

    def count(self, agent: Key) -> int:
        """How many threads wait: each has one run that could begin."""
        return len(self._queues.get(agent, ()))

    def since(self, agent: Key, thread: Key) -> datetime | None:
        """When the thread took its place; None: it has none."""
        return self._queues.get(agent, {}).get(thread)

    def may_take(self, agent: Key, thread: Key, free: int) -> bool:
        """Whether one of `free` slots is this thread's: fewer than `free` others came before it."""
        queue = self._queues.get(agent)
        if not queue or free <= 0:
            return free > 0
        ahead = list(queue).index(thread) if thread in queue else len(queue)
        return ahead < free

    def front(self, agent: Key, count: int) -> list[Key]:
        """The first `count` waiting threads, in order; they keep their places until they leave."""
        return list(self._queues.get(agent, {}))[: max(0, count)]
