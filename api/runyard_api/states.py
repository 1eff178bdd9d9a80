"""The words for a run's and a thread's state, in the LangGraph API's own spelling, and which of them are final."""

from enum import StrEnum


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    """Cancelled. A human-in-the-loop interrupt ends the run as success and leaves the thread interrupted."""

    @property
    def finished(self) -> bool:
        return self not in (RunState.PENDING, RunState.RUNNING)


class ThreadState(StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"


class Strategy(StrEnum):
    """What a new run does to the unfinished runs of its thread (`multitask_strategy`)."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class CancelAction(StrEnum):
    """How a run is cancelled: interrupt keeps the state reached, rollback restores the state before the run."""

    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"

    def escalated(self, other: "CancelAction | None") -> "CancelAction":
        """The stronger of the two: a rollback is never weakened to an interrupt."""
        return CancelAction.ROLLBACK if CancelAction.ROLLBACK in (self, other) else self
