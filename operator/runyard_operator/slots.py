"""Which pod a run may go to, and who is next when all are full: slots per pod, one queue per Agent. Pure state.

The pod's answer is truth: a reservation only bridges the time between our decision and what the pod reports. Used by
`links` (what pods hold), `runs.apply` (reserves, releases) and the wake-up of waiting threads.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runyard_operator.workqueue import Key


@dataclass
class PodSlots:
    """Slots of one pod. `full`: it refused a run since it last reported its load."""

    capacity: int = 0
    running: set[str] = field(default_factory=set)
    reserved: set[str] = field(default_factory=set)
    full: bool = False

    @property
    def busy(self) -> int:
        return len(self.running | self.reserved)

    @property
    def free(self) -> int:
        return 0 if self.full else max(0, self.capacity - self.busy)


def least_loaded(pods: Iterable[tuple[str, PodSlots]]) -> str | None:
    """The name of the pod with the most free slots (by name among equals); None if none is free."""
    free = [(-slots.free, name) for name, slots in pods if slots.free]
    return min(free)[1] if free else None


class Waiting:
    """Threads that wait for a slot of an Agent, first come first served."""

    def __init__(self) -> None:
        self._queues: dict[Key, dict[Key, None]] = {}

    def join(self, agent: Key, thread: Key) -> None:
        """Takes a place at the end, unless the thread has one."""
        self._queues.setdefault(agent, {}).setdefault(thread)

    def leave(self, agent: Key, thread: Key) -> None:
        queue = self._queues.get(agent)
        if queue is not None and thread in queue:
            del queue[thread]
            if not queue:
                del self._queues[agent]

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
