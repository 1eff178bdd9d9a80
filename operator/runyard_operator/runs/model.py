"""What a reconcile of a thread knows (Observed) and may do (Plan). Frozen values, made by `observe` and `decide`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from runyard_api.agent import Agent, RunDefaults
from runyard_api.conditions import RunReason
from runyard_api.internal import RunError, RunHeld
from runyard_api.run import Run
from runyard_api.states import CancelAction, RunState
from runyard_operator.workqueue import Key


@dataclass(frozen=True)
class Lost:
    """Why a pod can't finish an attempt any more. `failure`: it counts towards maxFailures."""

    message: str
    failure: bool


@dataclass(frozen=True)
class RunSeen:
    """One run as observed.

    `gone`: its object was deleted by somebody while it was unfinished. `pod`: the pod that has the run, or may have it.
    `held`: the run as that pod reports it. `unanswered`: the attempt of a request to that pod that got no answer.
    `lost`: that pod is lost to it. `stopping`: what that pod was asked already. `used`: the highest attempt known of.
    `surplus`: there are too many finished objects, and this is one of the oldest.
    """

    run: Run
    gone: bool = False
    pod: str | None = None
    held: RunHeld | None = None
    unanswered: int | None = None
    lost: Lost | None = None
    stopping: CancelAction | None = None
    used: int = 0
    surplus: bool = False

    @property
    def bound(self) -> bool:
        """Some pod that isn't known to be lost has it, or may have it."""
        return self.pod is not None and self.lost is None

    @property
    def ended_on_pod(self) -> bool:
        return self.held is not None and self.held.state.finished


@dataclass(frozen=True)
class AgentSeen:
    """The Agent a run names (None: there is none), its pods in short. `unusable_since`: no pod takes runs since then.
    `waits_since`: when the thread took a place in its queue (None: it has none).
    `hold_until`: until then a pod that was there before us may still tell of runs it has."""

    name: str
    agent: Agent | None
    unusable_since: datetime | None = None
    waits_since: datetime | None = None
    hold_until: datetime | None = None


@dataclass(frozen=True)
class Observed:
    """`runs` of one thread; `agents` by the names that runs give; `strays`: (pod, run) of runs without an object."""

    thread: Key
    runs: tuple[RunSeen, ...] = ()
    agents: Mapping[str, AgentSeen] = field(default_factory=dict)
    strays: tuple[tuple[str, RunHeld], ...] = ()


@dataclass(frozen=True)
class End:
    """How a run ended, wherever that is known from. `started` and `at` are known from rows; None: from elsewhere."""

    state: RunState
    error: RunError | None = None
    rolled_back: bool = False
    reason: RunReason | None = None
    """Reason of the Succeeded condition; None: the usual one of the state."""
    started: datetime | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Admit:
    """Give a hand-written Run its row and place; `graph_id` is the graph it executes."""

    seen: RunSeen
    graph_id: str


@dataclass(frozen=True)
class Refuse:
    """End a hand-written Run that never gets a row."""

    seen: RunSeen
    reason: RunReason
    message: str


@dataclass(frozen=True)
class RecordEnd:
    """Copy an end that a pod reports to the object, then acknowledge it."""

    seen: RunSeen
    end: End


@dataclass(frozen=True)
class RecordLoss:
    """Unbind a run from a pod that is lost to it."""

    seen: RunSeen
    lost: Lost


@dataclass(frozen=True)
class RecordRunning:
    """Write down that a pod executes the run."""

    seen: RunSeen


@dataclass(frozen=True)
class Stop:
    """Ask the pod to stop the run."""

    seen: RunSeen
    action: CancelAction
    reason: str


@dataclass(frozen=True)
class EndUnheld:
    """End a run that no pod holds: in the row first, then in the object. Rolled back: row and object go."""

    seen: RunSeen
    end: End


@dataclass(frozen=True)
class Dispatch:
    """Give the run to a pod: `pod`, or None for one with a free slot. It may take `deadline_seconds` in all."""

    seen: RunSeen
    attempt: int
    pod: str | None = None
    deadline_seconds: int = RunDefaults().active_deadline_seconds


@dataclass(frozen=True)
class Wait:
    """The run waits until a pod of its Agent takes runs. `reason`: UNKNOWN_AGENT or PENDING."""

    seen: RunSeen
    message: str
    reason: RunReason = RunReason.PENDING


@dataclass(frozen=True)
class AwaitAgent:
    """A hand-written Run can't be admitted before its Agent is there."""

    seen: RunSeen
    message: str


@dataclass(frozen=True)
class Expire:
    """Delete a finished object whose time has come."""

    seen: RunSeen


@dataclass(frozen=True)
class SettleStray:
    """Stop or acknowledge a run whose object doesn't exist."""

    pod: str
    held: RunHeld


@dataclass(frozen=True)
class Forget:
    """Nothing of this deleted Run is left to do."""

    seen: RunSeen


Action = (
    Admit
    | Refuse
    | RecordEnd
    | RecordLoss
    | RecordRunning
    | Stop
    | EndUnheld
    | Dispatch
    | Wait
    | AwaitAgent
    | Expire
    | SettleStray
    | Forget
)


@dataclass(frozen=True)
class Plan:
    """What to do now, in this order, and when to look again though nothing happens (None: never)."""

    actions: tuple[Action, ...] = ()
    due: datetime | None = None
