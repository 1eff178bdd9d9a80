"""Request bodies of the public API, as LangGraph's SDKs send them; the gateway judges what they ask for.

A field that the contract has and this server doesn't implement is listed here, so that the gateway can refuse it by
name (see `unsupported`); a field that nobody knows is refused too: no option is ever dropped in silence.
"""

from typing import Annotated, Any, Literal, Self, get_args
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from runyard_api.payload import SMALL_INT, Command, Durability, RunConfig
from runyard_api.states import RunState, Strategy, ThreadState

WireStreamMode = Literal[
    "values", "updates", "messages", "messages-tuple", "custom", "debug", "tasks", "checkpoints", "tools"
]
"""`tools` is sent by chat UIs that have tool callbacks; it selects nothing here."""


MAX_FILTER_VALUES = 256
"""Values in a filter, lists and objects included. Postgres compares each item of its lists with each of a document's,
and nothing, no timeout either, stops it in the middle of a document."""


def _small(wanted: dict[str, Any]) -> dict[str, Any]:
    """Raises ValueError for a filter of more than MAX_FILTER_VALUES values."""
    level: list[Any] = [wanted]
    found = 0
    while level:
        found += len(level)
        if found > MAX_FILTER_VALUES + 1:
            raise ValueError(f"a filter may have at most {MAX_FILTER_VALUES} values")
        inner = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
        level = [child for children in inner for child in children]
    return wanted


Filter = Annotated[dict[str, Any], AfterValidator(_small)]
"""JSON that what is looked for contains."""


def _listed(value: object) -> object:
    """One mode given as a bare string is a list of one. Raises ValueError for the one mode that LangGraph has alone."""
    modes = [value] if isinstance(value, str) else value
    if isinstance(modes, list) and "events" in modes:
        raise ValueError(f"mode 'events' is not supported by this server; use {', '.join(get_args(WireStreamMode))}")
    return modes


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckpointRef(BaseModel):
    """A checkpoint as clients name it, alone or as the `configurable` of a config; what they add beyond these is of no
    meaning to a look-up."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    thread_id: str | None = None
    checkpoint_ns: str | None = None
    checkpoint_id: str | None = None
    checkpoint_map: dict[str, str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _inner(cls, value: Any) -> Any:
        return value["configurable"] if isinstance(value, dict) and "configurable" in value else value


class ThreadCreate(_Body):
    """POST /threads."""

    thread_id: UUID | None = None
    metadata: dict[str, Any] | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    ttl: Any = None
    supersteps: list[Any] | None = None

    def unsupported(self) -> tuple[str, ...]:
        """Names of the options given that this server doesn't implement."""
        return _given(self, "ttl", "supersteps")


class ThreadPatch(_Body):
    """PATCH /threads/{id}: keys of `metadata` are set, others stay."""

    metadata: dict[str, Any] | None = None
    ttl: Any = None

    def unsupported(self) -> tuple[str, ...]:
        """Names of the options given that this server doesn't implement."""
        return _given(self, "ttl")


class ThreadCount(_Body):
    """POST /threads/count. `metadata` and `values`: what a thread's must contain."""

    metadata: Filter | None = None
    values: Filter | None = None
    status: ThreadState | None = None


ThreadField = Literal[
    "thread_id",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "config",
    "context",
    "status",
    "values",
    "interrupts",
    "error",
]


class ThreadSearch(ThreadCount):
    """POST /threads/search. `extract`: alias → path into the thread, such as values.messages[-1].content."""

    ids: list[UUID] | None = Field(default=None, max_length=1000)
    limit: int | None = Field(default=None, ge=1, le=1000)
    offset: int | None = Field(default=None, ge=0, le=SMALL_INT)
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[ThreadField] | None = None
    extract: dict[str, str] | None = Field(default=None, max_length=10)


class ThreadsPrune(_Body):
    """POST /threads/prune."""

    thread_ids: list[UUID] = Field(max_length=1000)
    strategy: Literal["delete", "keep_latest"] | None = None


class RunsCancel(_Body):
    """POST /runs/cancel: all of the user's runs with a status, or some runs of one thread."""

    status: Literal["pending", "running", "all"] | None = None
    thread_id: UUID | None = None
    run_ids: list[UUID] | None = Field(default=None, max_length=1000)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.status and (self.thread_id or self.run_ids):
            raise ValueError("status can't be given together with thread_id and run_ids")
        if not self.status and not (self.thread_id and self.run_ids):
            raise ValueError("either status (pending, running or all) or thread_id with run_ids is needed")
        return self

    def states(self) -> tuple[RunState, ...]:
        """Runs with which of these states are meant."""
        unfinished = (RunState.PENDING, RunState.RUNNING)
        return tuple(state for state in unfinished if self.status in (None, "all", state.value))


class RunCreate(_Body):
    """POST …/runs, …/runs/stream and …/runs/wait, on a thread or stateless. None means the field's default."""

    assistant_id: str = Field(min_length=1, max_length=256)
    input: Any = None
    command: Command | None = None
    metadata: dict[str, Any] | None = None
    config: RunConfig | None = None
    context: dict[str, Any] | None = None
    interrupt_before: Literal["*"] | list[str] | None = None
    interrupt_after: Literal["*"] | list[str] | None = None
    stream_mode: Annotated[list[WireStreamMode] | None, BeforeValidator(_listed)] = None
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = Field(default=None, description="Every run is resumable here, whatever this says.")
    multitask_strategy: Strategy | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Literal["delete", "keep"] | None = Field(default=None, description="Stateless runs only.")
    checkpoint: CheckpointRef | None = None
    checkpoint_id: str | None = None
    checkpoint_during: bool | None = None
    durability: Durability | None = None
    after_seconds: float | None = Field(
        default=None, ge=0, le=10 * 365 * 86_400, description="Seconds until it may start; runs behind it wait with it."
    )
    webhook: Any = None
    feedback_keys: list[str] | None = None
    langsmith_tracer: Any = Field(default=None, description="Accepted and ignored: this server doesn't trace.")
    strict_resume: Any = Field(default=None, description="Accepted and ignored: a hint.")
    reason: Any = Field(default=None, description="Accepted and ignored: a hint.")

    def unsupported(self) -> tuple[str, ...]:
        """Names of the options given that this server doesn't implement."""
        return _given(self, "webhook", "feedback_keys")


class StateAtCheckpoint(_Body):
    """POST /threads/{id}/state/checkpoint. `select` is a hint of newer SDKs: the whole state is a valid answer."""

    checkpoint: CheckpointRef
    subgraphs: bool | None = None
    select: Any = None


class StateWrite(_Body):
    """POST /threads/{id}/state."""

    values: Any = None
    as_node: str | None = None
    checkpoint: CheckpointRef | None = None
    checkpoint_id: str | None = None


class HistoryRead(_Body):
    """POST /threads/{id}/history. `before`: a checkpoint id, a checkpoint, or a config with a checkpoint in it."""

    limit: int | None = Field(default=None, ge=1, le=1000)
    before: str | dict[str, Any] | None = None
    metadata: Filter | None = None
    checkpoint: CheckpointRef | None = None
    select: Any = None


class AssistantSearch(_Body):
    """POST /assistants/search and /assistants/count (which uses the filters alone)."""

    metadata: Filter | None = None
    graph_id: str | None = None
    name: str | None = None
    limit: int | None = Field(default=None, ge=1, le=1000)
    offset: int | None = Field(default=None, ge=0, le=SMALL_INT)
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None


def _given(body: BaseModel, *names: str) -> tuple[str, ...]:
    """Those of the fields that were given a value that means something: not null, zero, empty or false."""
    return tuple(name for name in names if getattr(body, name))
