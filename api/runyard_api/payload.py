"""What a run is asked to do: the part of a run request that the runtime executes, stored in the row's `kwargs`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

StreamMode = Literal["values", "updates", "messages", "messages-tuple", "custom", "debug", "tasks", "checkpoints"]
Durability = Literal["sync", "async", "exit"]
Breakpoints = Literal["*"] | list[str]
SMALL_INT = 2**31 - 1
_RESERVED = frozenset({"thread_id", "run_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map"})
EMPTY_COMMAND = "command: must have at least one of update, resume and goto"


class Send(BaseModel):
    """A node to run next with its own input."""

    model_config = ConfigDict(extra="forbid")

    node: str
    input: Any = None


class Command(BaseModel):
    """A LangGraph Command in JSON: resume a human's answer, update the state, go to a node."""

    model_config = ConfigDict(extra="forbid")

    update: dict[str, Any] | list[tuple[str, Any]] | None = None
    resume: Any = None
    goto: str | Send | list[str | Send] | None = None

    @property
    def empty(self) -> bool:
        """Whether it says nothing: LangGraph can't run such a command."""
        return self.resume is None and not self.update and not self.goto


class RunConfig(BaseModel):
    """A LangGraph config. Keys beyond these have no meaning in JSON and are passed over."""

    model_config = ConfigDict(extra="allow", frozen=True)

    tags: list[str] | None = None
    recursion_limit: int | None = Field(default=None, ge=1, le=SMALL_INT)
    max_concurrency: int | None = Field(default=None, ge=1, le=SMALL_INT)
    run_name: str | None = None
    metadata: dict[str, Any] | None = None
    configurable: dict[str, Any] | None = None

    def parts(self) -> tuple[dict[str, Any], str | None]:
        """(the config to store, the checkpoint to fork from): ids and LangGraph's private keys in configurable are the
        server's and left out."""
        stored = self.model_dump(exclude_none=True, exclude={"configurable"})
        given = self.configurable or {}
        own = {key: value for key, value in given.items() if key not in _RESERVED and not key.startswith("__")}
        fork = given.get("checkpoint_id")
        return stored | ({"configurable": own} if own else {}), fork if isinstance(fork, str) and fork else None


class RunPayload(BaseModel):
    """Everything the graph is called with. Stored as JSON; read by the runtime when it claims the run."""

    model_config = ConfigDict(extra="forbid")

    input: Any = None
    command: Command | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    checkpoint: dict[str, Any] | None = None
    stream_mode: list[StreamMode] = Field(default=["values"])
    stream_subgraphs: bool = False
    interrupt_before: Breakpoints | None = None
    interrupt_after: Breakpoints | None = None
    durability: Durability = "async"
