"""Errors that cross a border between parts, each with the HTTP status it becomes at an edge.

RunyardError
├── BadRequest 400        well-formed, but the options contradict each other
├── Unauthenticated 401   no valid key or token
├── NotFound 404          the thing named doesn't exist for this user
├── Conflict 409
│   ├── ThreadBusy        reject: another run of the thread is unfinished
│   ├── AlreadyExists     an id is taken
│   ├── Held              another writer holds the thread's lease
│   ├── Stale             the attempt isn't newer than one already seen
│   ├── OldLeader         a newer leader of the operators has spoken to this pod
│   ├── Early             an earlier run of the thread is unfinished
│   └── Fenced            this attempt lost its thread: nothing it writes counts any more
├── Invalid 422           a field has a wrong type or value
├── NoSlot 429            every slot of the pod is taken
└── Unavailable 503       a dependency (database, API server, agent pod) doesn't answer; try again
    └── Draining          the pod finishes its runs and takes no new one
"""

from typing import ClassVar


class RunyardError(Exception):
    """Base of all errors that a person or another part may see; `detail` is one plain sentence."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "Error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class BadRequest(RunyardError):
    status, reason = 400, "BadRequest"


class Unauthenticated(RunyardError):
    status, reason = 401, "Unauthenticated"


class NotFound(RunyardError):
    status, reason = 404, "NotFound"


class Conflict(RunyardError):
    status, reason = 409, "Conflict"


class ThreadBusy(Conflict):
    reason = "ThreadBusy"


class AlreadyExists(Conflict):
    reason = "AlreadyExists"


class Held(Conflict):
    """Another run, or a state update, holds the lease of the thread."""

    reason = "Held"

    def __init__(self, detail: str, *, holder: str | None = None) -> None:
        super().__init__(detail)
        self.holder = holder


class Stale(Conflict):
    """The attempt is not newer than one already seen."""

    reason = "Stale"


class OldLeader(Conflict):
    """A newer leader of the operators has spoken to this pod."""

    reason = "OldLeader"


class Early(Conflict):
    """A run with a lower sequence on the same thread is unfinished."""

    reason = "Early"


class Fenced(Conflict):
    reason = "Fenced"


class Invalid(RunyardError):
    status, reason = 422, "Invalid"


class NoSlot(RunyardError):
    status, reason = 429, "NoSlot"


class Unavailable(RunyardError):
    status, reason = 503, "Unavailable"


class Draining(Unavailable):
    reason = "Draining"


def error_for(status: int, reason: str, detail: str) -> RunyardError:
    """The error that the other side of an internal API raised; an unknown pair gives the nearest class."""
    classes: list[type[RunyardError]] = _all_classes(RunyardError)
    exact = [c for c in classes if c.status == status and c.reason == reason]
    near = [c for c in classes if c.status == status]
    chosen = (exact or near or [Unavailable if status >= 500 else BadRequest])[0]
    return chosen(detail)


def _all_classes(base: type[RunyardError]) -> list[type[RunyardError]]:
    return [base, *(deeper for c in base.__subclasses__() for deeper in _all_classes(c))]
