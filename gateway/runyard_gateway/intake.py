"""From a run request's body to the run that is stored. Pure: contradictions and options that this server lacks are
refused here by name. Called by routes/submission.py."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from runyard_api.errors import BadRequest, Invalid
from runyard_api.payload import EMPTY_COMMAND, Durability, RunPayload, StreamMode
from runyard_api.states import Strategy
from runyard_api.wire import RunCreate
from runyard_gateway.assistants import Assistant
from runyard_store.runs import NewRun


@dataclass(frozen=True)
class Place:
    """Where the run is to go: ids, owner, and whether it has a thread of its own that nobody named (stateless)."""

    run_id: str
    thread_id: str
    user_id: str
    stateless: bool = False


def new_run(body: RunCreate, assistant: Assistant, place: Place, now: datetime) -> NewRun:
    """The run to store, asked for at `now`. Raises Invalid for what this server lacks, BadRequest for
    contradictions."""
    refuse_unsupported(body.unsupported())
    if place.stateless:
        _check_stateless(body)
    else:
        _check_threaded(body, place.thread_id)
    return NewRun(
        run_id=place.run_id,
        thread_id=place.thread_id,
        user_id=place.user_id,
        assistant_id=assistant.assistant_id,
        graph_id=assistant.graph_id,
        agent_name=assistant.agent_name,
        payload=_payload(body),
        metadata=body.metadata or {},
        multitask_strategy=body.multitask_strategy or Strategy.ENQUEUE,
        on_disconnect=body.on_disconnect or "continue",
        if_not_exists="create" if place.stateless else body.if_not_exists or "reject",
        temporary=place.stateless and body.on_completion != "keep",
        not_before=now + timedelta(seconds=body.after_seconds) if body.after_seconds else None,
    )


def refuse_unsupported(names: tuple[str, ...]) -> None:
    """Raises Invalid naming the options, if there are any."""
    if names:
        raise Invalid(f"{', '.join(names)}: not supported by this server")


def _check_stateless(body: RunCreate) -> None:
    if body.command is not None and body.command.resume is not None:
        raise BadRequest("You must provide a thread_id when resuming.")
    if body.checkpoint or body.checkpoint_id:
        raise BadRequest("You must provide a thread_id when starting from a checkpoint.")


def _check_threaded(body: RunCreate, thread_id: str) -> None:
    if body.on_completion == "delete":
        raise Invalid("on_completion: 'delete' is for stateless runs; a run on a thread allows 'keep' alone")
    if body.checkpoint and body.checkpoint.thread_id not in (None, thread_id):
        raise BadRequest("checkpoint.thread_id: must be the thread that the run is created on")


def _payload(body: RunCreate) -> RunPayload:
    if body.input is not None and body.command is not None:
        raise BadRequest("Cannot specify both input and command")
    if body.command is not None and body.command.empty:
        raise Invalid(EMPTY_COMMAND)
    config, checkpoint_id = body.config.parts() if body.config else ({}, None)
    if "configurable" in config and body.context:
        raise BadRequest("Cannot specify both configurable and context")
    return RunPayload(
        input=body.input,
        command=body.command,
        config=config,
        context=body.context or {},
        metadata=body.metadata or {},
        checkpoint=_checkpoint(body, checkpoint_id),
        stream_mode=stored_modes(body),
        stream_subgraphs=bool(body.stream_subgraphs),
        interrupt_before=body.interrupt_before,
        interrupt_after=body.interrupt_after,
        durability=_durability(body),
    )


def _checkpoint(body: RunCreate, configured: str | None) -> dict[str, Any] | None:
    whole = body.checkpoint.model_dump(exclude_none=True, exclude={"thread_id"}) if body.checkpoint else {}
    named = body.checkpoint_id or whole.get("checkpoint_id")
    if named != whole.get("checkpoint_id", named):
        raise BadRequest("Cannot specify a checkpoint and another checkpoint_id")
    chosen = named or configured
    return {**whole, "checkpoint_id": chosen} if chosen else whole or None


def stored_modes(body: RunCreate) -> list[StreamMode]:
    """The modes that the run emits: values when none is named; `tools` selects nothing."""
    modes: list[StreamMode] = [mode for mode in body.stream_mode or () if mode != "tools"]
    return list(dict.fromkeys(modes)) or ["values"]


def _durability(body: RunCreate) -> Durability:
    if body.checkpoint_during is None:
        return body.durability or "async"
    meant: Durability = "async" if body.checkpoint_during else "exit"
    if body.durability and (body.durability == "exit") != (meant == "exit"):
        raise BadRequest(f"Cannot specify durability '{body.durability}' and a checkpoint_during that contradicts it")
    return body.durability or meant
