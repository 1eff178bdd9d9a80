"""What the dispatcher drives: the runtime's API and the rows of the runs. Met by runyard_clients.runtime and `rows`."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from runyard_api.internal import RunError, RunStart, StatusMessage
from runyard_api.states import CancelAction, RunState
from runyard_clients.runtime import StartAnswer
from runyard_gateway.ports import AgentEndpoint
from runyard_store.runs import RunRow


class Runtime(AgentEndpoint, Protocol):
    """The part of the runtime's API that the dispatcher drives; runyard_clients.runtime.RuntimeClient has it."""

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer: ...

    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None: ...

    async def ack(self, run_id: str) -> None: ...

    def status(self) -> AsyncGenerator[StatusMessage, None]: ...


class Rows(Protocol):
    """The rows of the runs, as the dispatcher needs them."""

    async def get(self, run_id: str) -> RunRow:
        """Raises NotFound."""
        ...

    async def unfinished(self) -> Sequence[RunRow]:
        """All unfinished runs of the database."""
        ...

    async def finish(self, run_id: str, state: RunState, error: RunError | None) -> RunRow | None:
        """Ends a run that no runtime holds. Gives the row as it is then (the first end wins), None if it is gone."""
        ...

    async def roll_back(self, run_id: str) -> None:
        """Removes a run that no runtime holds and what it wrote; one that is gone already is no error."""
        ...
