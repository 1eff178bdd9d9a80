"""What the reconcile of runs keeps in memory between two looks, and loses with the process without harm.

Everything here is either repeated safely (a stop, a request to a pod) or told again by pods, rows and objects.
"""

from dataclasses import dataclass, field
from datetime import datetime

from runyard_api.retry import pause
from runyard_api.run import Run
from runyard_api.states import CancelAction, RunState
from runyard_operator.workqueue import Key

RETRY = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds before a pod is asked again for the same run; the last one repeats."""


@dataclass(frozen=True)
class Unanswered:
    """A request to start an attempt that got no answer from this pod."""

    pod: str
    pod_uid: str
    attempt: int


@dataclass
class RunMemory:
    """One run: `used` is the highest attempt known to have been claimed; `started` is exact, unlike the status; `seen`:
    when this operator first saw it waiting. `template`: hash of the pod template that its last attempt ran on; the next
    one goes there too if it can."""

    unanswered: Unanswered | None = None
    used: int = 0
    stopping: tuple[int, CancelAction] | None = None
    started: datetime | None = None
    seen: datetime | None = None
    retries: int = 0
    template: str | None = None
    waits_since: datetime | None = None
    wait_told: bool = False


@dataclass
class Memory:
    """`deleted`: unfinished Runs whose object somebody deleted, by thread and run id. `waits_for`: the Agent in whose
    queue a thread has a place. `own_deletions`: uids of objects that we delete, until the watch tells of it. `surplus`:
    ids of finished runs whose objects are too many (`trim`)."""

    runs: dict[str, RunMemory] = field(default_factory=dict)
    deleted: dict[Key, dict[str, Run]] = field(default_factory=dict)
    waits_for: dict[Key, Key] = field(default_factory=dict)
    own_deletions: set[str] = field(default_factory=set)
    surplus: set[str] = field(default_factory=set)

    def of(self, run_id: str) -> RunMemory:
        return self.runs.setdefault(run_id, RunMemory())

    def forget(self, run_id: str) -> None:
        self.runs.pop(run_id, None)
        self.surplus.discard(run_id)

    def retry_in(self, run_id: str) -> float:
        """Seconds to wait before the next try; longer each time."""
        memory = self.of(run_id)
        memory.retries += 1
        return pause(RETRY, memory.retries)

    def note_deleted(self, thread: Key, run: Run) -> None:
        """Keeps a Run that was deleted before it ended, until it is cancelled."""
        self.deleted.setdefault(thread, {})[run.run_id] = run

    def unbind_deleted(self, thread: Key, run: Run) -> None:
        """The pod of a deleted Run is lost; its status, which nobody can write any more, says so here."""
        status = run.status.model_copy(update={"state": RunState.PENDING, "pod_name": None, "pod_nonce": None})
        self.note_deleted(thread, run.model_copy(update={"status": status}))

    def forget_deleted(self, thread: Key, run_id: str) -> None:
        runs = self.deleted.get(thread, {})
        runs.pop(run_id, None)
        if not runs:
            self.deleted.pop(thread, None)
