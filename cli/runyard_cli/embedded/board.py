"""What the embedded dispatcher knows of every unfinished run, and what that means. Pure: no I/O, no clock.

Called by `dispatcher`, which tells it what happened (a run was submitted, cancelled, given to the runtime, heard of)
and follows the plans of `runyard_api.dispatch` that it makes from them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from runyard_api.dispatch import SeenRun, ThreadPlan, plan_thread
from runyard_api.internal import RunError, RunHeld
from runyard_api.states import CancelAction, RunState, Strategy


@dataclass(frozen=True)
class Entry:
    """One run. `bound`: its current attempt was given to the runtime. `failures`: how often the process was killed
    during it. `stopping`: the cancel the runtime knows of."""

    run_id: str
    thread_id: str
    graph_id: str
    sequence: int
    strategy: Strategy
    attempt: int = 0
    state: RunState = RunState.PENDING
    bound: bool = False
    failures: int = 0
    cancel: CancelAction | None = None
    cancel_reason: str = ""
    stopping: CancelAction | None = None
    error: RunError | None = None
    rolled_back: bool = False
    not_before: datetime | None = None

    def seen(self) -> SeenRun:
        return SeenRun(self.run_id, self.sequence, self.state, self.strategy, self.bound, self.cancel, self.not_before)


class Board:
    """The unfinished runs by id and by thread. Entries are replaced, never changed; finished ones are taken off."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._threads: dict[str, set[str]] = {}

    def get(self, run_id: str) -> Entry | None:
        return self._entries.get(run_id)

    def threads(self) -> list[str]:
        return list(self._threads)

    @property
    def bound(self) -> int:
        """How many runs the runtime has been given."""
        return sum(entry.bound for entry in self._entries.values())

    def add(self, entry: Entry) -> bool:
        """Puts a run on the board; False when it is there already."""
        if entry.run_id in self._entries:
            return False
        self._put(entry)
        return True

    def cancel(self, run_id: str, action: CancelAction, reason: str) -> Entry | None:
        """Notes a cancel; a rollback is never weakened. None: the run isn't here, so it has ended."""
        entry = self._entries.get(run_id)
        if entry is None:
            return None
        return self._put(
            replace(entry, cancel=action.escalated(entry.cancel), cancel_reason=entry.cancel_reason or reason)
        )

    def plan(self, thread_id: str, now: datetime) -> ThreadPlan:
        """The plan of one thread, without the stops that the runtime has been told."""
        entries = [self._entries[run_id] for run_id in self._threads.get(thread_id, ())]
        plan = plan_thread((entry.seen() for entry in entries), now)
        known = {entry.run_id: entry.stopping for entry in entries}
        return replace(plan, stop=tuple((r, action) for r, action in plan.stop if known[r] != action))

    def bind(self, run_id: str) -> int:
        """Notes that the run goes to the runtime now; gives the number of the attempt."""
        entry = self._entries[run_id]
        self._put(replace(entry, bound=True))
        return entry.attempt + 1

    def unbind(self, run_id: str) -> None:
        """The runtime didn't take the run: it waits again, and the next attempt keeps its number."""
        if entry := self._entries.get(run_id):
            self._put(replace(entry, bound=False, stopping=None))

    def stopping(self, run_id: str, action: CancelAction) -> None:
        """The runtime knows of the cancel."""
        if entry := self._entries.get(run_id):
            self._put(replace(entry, stopping=action))

    def set_attempt(self, run_id: str, attempt: int) -> None:
        """The newest attempt that the database has seen; the next one is higher."""
        if entry := self._entries.get(run_id):
            self._put(replace(entry, attempt=max(attempt, entry.attempt)))

    def heard(self, held: RunHeld) -> Entry | None:
        """What the runtime says of a run. Gives the entry if that is news; None if not, or of an old attempt.

        An attempt that the runtime gave up leaves the run unbound: the next attempt is due.
        """
        entry = self._entries.get(held.run_id)
        if entry is None or held.attempt < entry.attempt:
            return None
        heard = replace(
            entry,
            attempt=held.attempt,
            state=held.state,
            bound=not held.state.finished and held.given_up is None,
            stopping=None if held.given_up else entry.stopping,
            error=held.error,
            rolled_back=held.rolled_back,
        )
        if heard == entry:
            return None
        if held.state.finished or held.rolled_back:
            self.take_off(held.run_id)
            return heard
        return self._put(heard)

    def lost(self, held: Iterable[str]) -> list[Entry]:
        """The runs that were given to the runtime but aren't in its snapshot: unbound, so the next attempt is due."""
        here = set(held)
        gone = [e for e in self._entries.values() if e.bound and e.state is RunState.RUNNING and e.run_id not in here]
        return [self._put(replace(entry, bound=False, stopping=None)) for entry in gone]

    def take_off(self, run_id: str) -> Entry | None:
        """Removes a run that has ended, by whatever way."""
        entry = self._entries.pop(run_id, None)
        if entry:
            runs = self._threads[entry.thread_id]
            runs.discard(run_id)
            if not runs:
                del self._threads[entry.thread_id]
        return entry

    def _put(self, entry: Entry) -> Entry:
        self._entries[entry.run_id] = entry
        self._threads.setdefault(entry.thread_id, set()).add(entry.run_id)
        return entry
