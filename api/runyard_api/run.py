"""The Run resource: one execution of a graph on a thread. Models, builders and the view that operator and gateway read.

Gateway-made Runs are named by their run id and carry a sequence; hand-written ones carry neither, nor user data but in
`spec.payload`. `crd_schema` turns the models into `crds/`.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import orjson
from pydantic import ConfigDict, Field, ValidationError

from runyard_api.conditions import Condition
from runyard_api.crd import (
    AGE,
    ANY_JSON,
    DNS_LABEL,
    UUID_TEXT,
    Column,
    CrdModel,
    Int32,
    KindDefinition,
    Manifest,
    Resource,
    Timestamp,
    format_time,
    list_map,
    rule,
    rules,
)
from runyard_api.errors import Invalid
from runyard_api.names import DEFAULT_USER
from runyard_api.payload import EMPTY_COMMAND, Command, RunConfig, RunPayload
from runyard_api.spelling import CancelWord, DisconnectWord, DurabilityWord, StrategyWord, StreamWord
from runyard_api.states import CancelAction, RunState, Strategy

PAYLOAD_MAX_BYTES = 16 * 1024

_UUID_RULE = rule(
    f"self.matches('{UUID_TEXT}')", "must be a lower-case UUID such as 0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e"
)
UuidText = Annotated[str, Field(max_length=36, json_schema_extra=rules(_UUID_RULE))]
AgentName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=40,
        json_schema_extra=rules(
            rule(f"self.matches('{DNS_LABEL}')", "must be the name of an Agent: lower-case letters, digits and '-'")
        ),
    ),
]


class CommandSpec(CrdModel):
    """A LangGraph Command: answers an interrupt, updates the state or goes to a node."""

    update: Any = Field(
        default=None,
        description="State update: an object, or a list of [key, value] pairs. Absent: none.",
        json_schema_extra=ANY_JSON,
    )
    resume: Any = Field(
        default=None, description="The answer to the thread's interrupt. Absent: none.", json_schema_extra=ANY_JSON
    )
    goto: Any = Field(
        default=None,
        description="A node's name, {node, input}, or a list of these. Absent: the graph decides.",
        json_schema_extra=ANY_JSON,
    )


class PayloadSpec(CrdModel):
    """What the graph of a hand-written Run is called with; at most 16 KiB of JSON in all."""

    input: Any = Field(
        default=None,
        description="Input of the graph. Absent: none, the thread goes on from its state.",
        json_schema_extra=ANY_JSON,
    )
    command: CommandSpec | None = Field(default=None, description="Command instead of an input. Absent: none.")
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=64,
        description="LangGraph's RunnableConfig: configurable, tags, recursion_limit. Absent: empty.",
    )
    context: dict[str, Any] | None = Field(
        default=None, max_length=64, description="The graph's runtime context. Absent: empty."
    )
    metadata: dict[str, Any] | None = Field(
        default=None, max_length=64, description="Kept with the run and its checkpoints. Absent: empty."
    )


class CancelSpec(CrdModel):
    """A request to stop the Run."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.action == oldSelf.action || self.action == 'Rollback'",
                "may be escalated from Interrupt to Rollback, never weakened",
                at=".action",
            )
        )
    )

    action: CancelWord = Field(
        description="Interrupt keeps the state reached; Rollback restores the state before the Run and removes the Run."
    )
    reason: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="Why, for a person. Absent: not said."
    )


class RunSpec(CrdModel):
    """What is to be executed. Fixed at creation, but for `cancel`."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("!has(self.sequence) || has(self.threadId)", "is needed beside sequence", at=".threadId"),
            rule("!has(self.sequence) || !has(self.payload)", "is for Runs without a sequence", at=".payload"),
            rule("!has(oldSelf.cancel) || has(self.cancel)", "can't be taken back", at=".cancel"),
        )
    )

    agent_name: AgentName = Field(description="Name of the Agent, in the same namespace, that executes the Run.")
    graph_id: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Graph of the Agent to execute. Absent: the Agent's only graph."
    )
    assistant_id: UuidText | None = Field(
        default=None, description="Assistant whose settings apply. Absent: the one that every graph has."
    )
    thread_id: UuidText | None = Field(
        default=None,
        description="Thread the Run belongs to; made if it doesn't exist. Absent: a new thread named by the Run's uid.",
    )
    user_id: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description=f"Owner of thread and Run. Absent: `{DEFAULT_USER}`."
    )
    sequence: Annotated[Int32, Field(ge=1)] | None = Field(
        default=None,
        description="Place in the thread's order, set by the gateway. Absent: hand-written; the operator counts.",
    )
    payload: PayloadSpec | None = Field(
        default=None,
        description="What the graph is called with, for hand-written Runs; copied when the Run is admitted, later "
        "changes have no effect. Absent: the gateway has stored it, or the graph gets no input.",
    )
    stream_mode: Annotated[tuple[StreamWord, ...], Field(min_length=1, max_length=8)] = Field(
        default=(StreamWord.VALUES,),
        description="Which events are recorded.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    multitask_strategy: StrategyWord = Field(
        default=StrategyWord.ENQUEUE,
        description="What happens to the thread's unfinished Runs: Enqueue waits for them, "
        "Reject fails this one, Interrupt and Rollback cancel them.",
    )
    on_disconnect: DisconnectWord = Field(
        default=DisconnectWord.CONTINUE,
        description="What it means for the Run when the request that made it and reads it is left, as the gateway "
        "minds it; nothing for a Run written by hand.",
    )
    durability: DurabilityWord = Field(
        default=DurabilityWord.ASYNC,
        description="When checkpoints are written: Sync before the next step, Async during it, Exit at the end.",
    )
    not_before: Timestamp | None = Field(
        default=None,
        description="When the Run may start at the earliest; those behind it on its thread wait with it. "
        "Absent: at once.",
    )
    active_deadline_seconds: Annotated[Int32, Field(ge=1)] | None = Field(
        default=None,
        description="Seconds after the start of its first attempt at which the Run is stopped and ends as timeout. "
        "Absent: the Agent decides.",
    )
    ttl_seconds_after_finished: Annotated[Int32, Field(ge=0)] | None = Field(
        default=None,
        description="Seconds until the finished object (not its record) is deleted. Absent: the Agent decides.",
    )
    cancel: CancelSpec | None = Field(default=None, description="Stops the Run. Absent: it may run.")


class RunErrorStatus(CrdModel):
    """Why a Run failed."""

    error: Annotated[str, Field(max_length=256)] = Field(description="Exception class or reason, one word.")
    message: Annotated[str, Field(max_length=4096)] = Field(description="One sentence for a person.")


class RunStatus(CrdModel):
    """What has become of the Run, written by the operator alone."""

    state: RunState = Field(default=RunState.PENDING, description="In the words of the LangGraph API.")
    sequence: Annotated[Int32, Field(ge=1)] | None = Field(
        default=None,
        description="Place in its thread of a hand-written Run. Absent: see spec.sequence, or not admitted yet.",
    )
    attempt: Annotated[Int32, Field(ge=0)] | None = Field(
        default=None, description="How often the Run was given to a pod. Absent: never."
    )
    failures: Annotated[Int32, Field(ge=0)] | None = Field(
        default=None,
        description="Failures that count towards the Agent's maxFailures. Absent: none.",
    )
    pod_name: str | None = Field(default=None, description="Pod of the latest attempt. Absent: none yet.")
    pod_nonce: str | None = Field(
        default=None, description="Creation nonce of that pod, part of its token. Absent: no pod."
    )
    endpoint: str | None = Field(default=None, description="Address of that pod, ip:port. Absent: no pod.")
    start_time: Timestamp | None = Field(default=None, description="When the first attempt began. Absent: not yet.")
    completion_time: Timestamp | None = Field(default=None, description="When the Run ended. Absent: not yet.")
    duration: str | None = Field(
        default=None, description="From startTime to completionTime, such as 3.2s. Absent: not ended or never started."
    )
    error: RunErrorStatus | None = Field(default=None, description="Absent: no failure.")
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="Admitted: whether it has its place in the thread's order. Succeeded: Unknown from when a pod "
        "executes it, True or False once it has ended.",
        json_schema_extra=list_map("type"),
    )


class Run(Resource):
    """A Run as read from the API server, with the ids that follow from how it was made."""

    spec: RunSpec
    status: RunStatus = RunStatus()

    @property
    def hand_written(self) -> bool:
        return self.spec.sequence is None

    @property
    def run_id(self) -> str:
        return self.metadata.uid if self.hand_written else self.metadata.name

    @property
    def thread_id(self) -> str:
        return self.spec.thread_id or self.metadata.uid

    @property
    def user_id(self) -> str:
        return self.spec.user_id or DEFAULT_USER

    @property
    def sequence(self) -> int | None:
        """The place in the thread's order; None for a hand-written Run that isn't admitted yet."""
        return self.spec.sequence or self.status.sequence

    @property
    def state(self) -> RunState:
        return self.status.state

    @property
    def strategy(self) -> Strategy:
        return self.spec.multitask_strategy.wire

    @property
    def cancel_action(self) -> CancelAction | None:
        return self.spec.cancel.action.wire if self.spec.cancel else None


def run_object(
    *,
    run_id: str,
    namespace: str,
    agent_name: str,
    graph_id: str,
    assistant_id: str,
    thread_id: str,
    user_id: str,
    sequence: int,
    strategy: Strategy,
    on_disconnect: str,
    durability: str,
    stream_mode: Iterable[str],
    not_before: datetime | None = None,
    ttl_seconds: int | None = None,
) -> Manifest:
    """The Run object of a run that the gateway has stored; words come in the LangGraph API's spelling.

    `not_before` None: it may start at once; `ttl_seconds` None: the Agent's default. Raises ValueError on a word that
    the resource doesn't have.
    """
    spec: Manifest = {
        "agentName": agent_name,
        "graphId": graph_id,
        "assistantId": assistant_id,
        "threadId": thread_id,
        "userId": user_id,
        "sequence": sequence,
        "streamMode": list(dict.fromkeys(StreamWord.of(mode).value for mode in stream_mode)),
        "multitaskStrategy": StrategyWord.of(strategy).value,
        "onDisconnect": DisconnectWord.of(on_disconnect).value,
        "durability": DurabilityWord.of(durability).value,
    }
    if not_before is not None:
        spec["notBefore"] = format_time(not_before)
    if ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = ttl_seconds
    return {**Run.identity(name=run_id, namespace=namespace), "spec": spec}


def cancel_patch(action: CancelAction, reason: str = "") -> Manifest:
    """The merge patch that cancels a Run; an empty reason is left out, a long one is cut."""
    return {"spec": {"cancel": {"action": CancelWord.of(action).value} | ({"reason": reason[:256]} if reason else {})}}


def payload_of(spec: RunSpec) -> RunPayload:
    """The payload of a hand-written Run as the store keeps it. Raises Invalid if it is over 16 KiB or makes no sense.

    The size is checked here because the API server can't: user JSON is invisible to its rules.
    """
    given = spec.payload or PayloadSpec()
    size = len(orjson.dumps(given.to_json()))
    if size > PAYLOAD_MAX_BYTES:
        raise Invalid(f"spec.payload is {size} bytes of JSON; at most {PAYLOAD_MAX_BYTES} are allowed")
    command = _command(given)
    config, fork = _config(given)
    return RunPayload(
        input=given.input,
        command=command,
        config=config,
        context=given.context or {},
        metadata=given.metadata or {},
        checkpoint={"checkpoint_id": fork} if fork else None,
        stream_mode=[word.wire for word in spec.stream_mode],
        durability=spec.durability.wire,
    )


def _command(given: PayloadSpec) -> Command | None:
    if given.command is None:
        return None
    if given.input is not None:
        raise Invalid("spec.payload: input and command can't both be given")
    try:
        command = Command.model_validate(given.command.to_json())
    except ValueError as error:
        raise Invalid("spec.payload.command must be {update, resume, goto} as LangGraph's Command has them") from error
    if command.empty:
        raise Invalid(f"spec.payload.{EMPTY_COMMAND}")
    return command


def _config(given: PayloadSpec) -> tuple[dict[str, Any], str | None]:
    """The config to store, and the checkpoint to fork from."""
    try:
        config, fork = RunConfig.model_validate(given.config or {}).parts()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"spec.payload.config.{where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    if "configurable" in config and given.context:
        raise Invalid("spec.payload: config.configurable and context can't both be given")
    return config, fork


RUN = KindDefinition(
    model=Run,
    plural="runs",
    short_name="rn",
    description="One execution of an Agent's graph on a thread.",
    columns=(
        Column("Status", "string", ".status.state", "pending, running, success, error, timeout or interrupted."),
        Column("Agent", "string", ".spec.agentName", "The Agent that executes the Run."),
        Column("Thread", "string", ".spec.threadId", "The thread; empty: one named by the Run's uid."),
        Column("Attempt", "integer", ".status.attempt", "How often the Run was given to a pod."),
        AGE,
        Column("Duration", "string", ".status.duration", "From start to end."),
        Column("Pod", "string", ".status.podName", "The pod of the latest attempt.", wide=True),
    ),
    selectable=(".spec.threadId", ".spec.agentName", ".status.state"),
    status_default={"state": RunState.PENDING.value},
    immutable_spec_except=("cancel",),
)
