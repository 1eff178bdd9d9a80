"""What the gateway needs from the world that executes runs. Two worlds exist: a cluster (kube_runs.py) and the embedded
dispatcher (runyard_cli). Routes, relay and waits know these protocols alone; nothing else branches on the mode.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from runyard_api.events import Event, EventId
from runyard_api.internal import GraphSchemas, HistoryQuery, RunError, StateQuery, StateUpdate
from runyard_api.states import CancelAction, RunState
from runyard_store.deletion import RemovedRun
from runyard_store.runs import RunRow


class AgentEndpoint(Protocol):
    """One agent pod's internal API; runyard_clients.runtime.RuntimeClient is one.

    Every call raises the errors of runyard_api.errors; a pod that doesn't answer is Unavailable.
    """

    def event_batches(
        self, run_id: str, after: EventId | None = None, *, live: bool = False
    ) -> AsyncGenerator[list[Event], None]:
        """The run's events after `after` (None: from the first; `live`: only what comes), those that arrived together
        as one list, in order, until the run's end. Raises NotFound on the first step when the pod doesn't know it."""
        ...

    async def state(self, thread_id: str, query: StateQuery) -> dict[str, Any]: ...

    async def history(self, thread_id: str, query: HistoryQuery) -> list[dict[str, Any]]: ...

    async def update(self, thread_id: str, update: StateUpdate) -> dict[str, Any]: ...

    async def schemas(self, graph_id: str) -> GraphSchemas: ...


@dataclass(frozen=True)
class RunStatus:
    """A run as the world that executes it shows it.

    `endpoint` is set while a pod holds the run; a newer `attempt` may have another one. `error` is set when it failed.
    """

    state: RunState
    attempt: int = 0
    endpoint: AgentEndpoint | None = None
    error: RunError | None = None


@dataclass(frozen=True)
class AgentView:
    """One agent: the graph ids it serves (empty: not discovered yet), and why it isn't ready when it isn't. `template`
    names what its schemas are kept under (empty: they aren't)."""

    name: str
    graphs: tuple[str, ...]
    ready: bool
    created_at: datetime
    reason: str = ""
    template: str = ""


class Runs(Protocol):
    """Executes runs whose rows are committed, and says how they do."""

    async def submit(self, run: RunRow) -> None:
        """Hands a committed run over for execution. Idempotent; raises Unavailable when it could not be handed over."""
        ...

    async def cancel(self, run: RunRow, action: CancelAction, reason: str) -> None:
        """Asks for the run to stop; its row already says so. Doesn't wait until it has; a finished run is no error."""
        ...

    async def remove(self, run: RemovedRun) -> None:
        """The run's row is gone: nothing of it may stay at work or be seen. Idempotent. Raises Unavailable."""
        ...

    def watch(self, run_id: str) -> AbstractAsyncContextManager[AsyncIterator[RunStatus]]:
        """The run's present status first (pending when nothing is known of it yet), then each change.

        The iterator ends after a finished status, or when the run has vanished: its row then says how it ended.
        """
        ...

    def agents(self) -> Sequence[AgentView]:
        """All agents, oldest first: of two that serve one graph id, the first owns it."""
        ...

    async def endpoint(self, agent_name: str) -> AgentEndpoint:
        """A pod of the agent that answers; if none is up, has one started and waits at most 30 s for it. Raises
        NotFound for no such agent, Unavailable."""
        ...
