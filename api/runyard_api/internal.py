"""The runtime's internal API, version 1: models shared by the runtime (server) and runyard_clients (client).

PUT  /internal/v1/runs/{id}              RunStart → 201 started | 200 already mine or terminal (RunHeld);
                                         409 Held|Stale|Early, 429 NoSlot, 503 Draining as ErrorBody
POST /internal/v1/runs/{id}/cancel       CancelRequest → 202; 404 when the pod doesn't hold the run
POST /internal/v1/runs/{id}/ack          204; the operator has recorded the terminal state
GET  /internal/v1/runs/{id}/events       ?after=<event id> → lines of runyard_api.events after it (without: from the
                                         first; ?live=1: only what comes), until the run ends; an empty line every
                                         few seconds keeps the connection alive
GET  /internal/v1/status                 NDJSON of StatusMessage: a snapshot first, then changes, `beat` every second
POST /internal/v1/ping                   StatusMessage snapshot without runs: proof of life in both directions
GET  /internal/v1/info                   RuntimeInfo
GET  /internal/v1/graphs/{graph}/schemas GraphSchemas
POST /internal/v1/threads/{id}/state     StateQuery → thread state JSON
POST /internal/v1/threads/{id}/history   HistoryQuery → list of thread states, newest first
POST /internal/v1/threads/{id}/update    StateUpdate → {checkpoint, configurable, checkpoint_id}; 409 if a run holds it
Every call but /healthz and /metrics carries `Authorization: Bearer <pod token>`. PUT, cancel, ack and ping by an
operator carry its term of leading in TERM_HEADER: a pod that has heard a later one answers 409 OldLeader.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runyard_api.states import CancelAction, RunState

TERM_HEADER = "Runyard-Leader-Term"


class _Message(BaseModel):
    """Unknown fields are ignored: the other side may be two versions newer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ErrorBody(_Message):
    reason: str
    detail: str
    holder: str | None = None


class RunStart(_Message):
    """`active_deadline_seconds`: from its first attempt's start; None: no limit."""

    thread_id: str
    graph_id: str
    attempt: int = Field(ge=1)
    active_deadline_seconds: int | None = Field(default=None, ge=1)


class RunError(_Message):
    """`error` is an exception class or reason, `message` one sentence."""

    error: str
    message: str


class RunHeld(_Message):
    """A run as its pod knows it. `state` is terminal once the row is; then `error` may be set.

    `given_up`: this attempt stopped without an end (state stays running), because another attempt took the thread
    (fenced) or the pod drains; the run is no longer in the pod's next snapshot.
    """

    run_id: str
    thread_id: str
    attempt: int
    state: RunState
    error: RunError | None = None
    rolled_back: bool = False
    given_up: Literal["fenced", "drained"] | None = None


class CancelRequest(_Message):
    action: CancelAction = CancelAction.INTERRUPT
    reason: str = ""


class StatusMessage(_Message):
    """`snapshot` carries everything; `run` carries the runs that changed; `beat` only proves life.

    `left`: runs that the pod may still take (None: any number); at 0 it is used up, and goes once they have ended.
    """

    kind: Literal["snapshot", "run", "beat"]
    boot_id: str
    slots: int
    busy: int
    draining: bool = False
    left: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    runs: tuple[RunHeld, ...] = ()


class RuntimeInfo(_Message):
    boot_id: str
    slots: int
    graphs: tuple[str, ...]
    versions: dict[str, str]


class GraphSchemas(_Message):
    """JSON schemas; None where the graph declares none."""

    graph_id: str
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    state_schema: dict[str, Any] | None = None
    config_schema: dict[str, Any] | None = None
    context_schema: dict[str, Any] | None = None


class StateQuery(_Message):
    graph_id: str
    checkpoint: dict[str, Any] | None = None
    subgraphs: bool = False


class HistoryQuery(_Message):
    graph_id: str
    limit: int = Field(default=10, ge=1, le=1000)
    before: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None


class StateUpdate(_Message):
    """`user_id`: whose the thread must be; None, of gateways before it was sent, is anybody's."""

    graph_id: str
    user_id: str | None = None
    values: Any = None
    as_node: str | None = None
    checkpoint: dict[str, Any] | None = None
