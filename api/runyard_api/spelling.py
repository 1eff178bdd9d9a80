"""The words of custom resources (CamelCase) beside those of the LangGraph API, and the one place that converts them.

Each resource enum holds the wire word it stands for; `.wire` goes one way, `.of(word)` the other.
"""

from enum import StrEnum
from typing import Any, Self

from runyard_api.payload import Durability, StreamMode
from runyard_api.states import CancelAction, Strategy


class _Word(StrEnum):
    """A CamelCase word of a custom resource."""

    @classmethod
    def of(cls, wire: str) -> Self:
        """The resource's word for one of the LangGraph API: `messages-tuple` → `MessagesTuple`. Raises ValueError."""
        return cls("".join(part.capitalize() for part in str(wire).split("-")))

    def _lowered(self) -> Any:
        return "".join(("-" if c.isupper() and i else "") + c.lower() for i, c in enumerate(self.value))


class StrategyWord(_Word):
    ENQUEUE = "Enqueue"
    REJECT = "Reject"
    INTERRUPT = "Interrupt"
    ROLLBACK = "Rollback"

    @property
    def wire(self) -> Strategy:
        return Strategy(self._lowered())


class CancelWord(_Word):
    INTERRUPT = "Interrupt"
    ROLLBACK = "Rollback"

    @property
    def wire(self) -> CancelAction:
        return CancelAction(self._lowered())


class DisconnectWord(_Word):
    CONTINUE = "Continue"
    CANCEL = "Cancel"

    @property
    def wire(self) -> str:
        return str(self._lowered())


class DurabilityWord(_Word):
    SYNC = "Sync"
    ASYNC = "Async"
    EXIT = "Exit"

    @property
    def wire(self) -> Durability:
        word: Durability = self._lowered()
        return word


class StreamWord(_Word):
    VALUES = "Values"
    UPDATES = "Updates"
    MESSAGES = "Messages"
    MESSAGES_TUPLE = "MessagesTuple"
    CUSTOM = "Custom"
    DEBUG = "Debug"
    TASKS = "Tasks"
    CHECKPOINTS = "Checkpoints"

    @property
    def wire(self) -> StreamMode:
        word: StreamMode = self._lowered()
        return word
