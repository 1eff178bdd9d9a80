"""The arguments a graph is called with, made from a run's row. Pure; called by `execution.py` and `threads.py`."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Send

from runyard_api.payload import EMPTY_COMMAND, RunPayload, StreamMode
from runyard_api.payload import Command as CommandRequest
from runyard_api.payload import Send as SendRequest

_CHECKPOINT_KEYS = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")
_PASSED = ("max_concurrency", "run_name")
_INTERNAL_MODES: dict[StreamMode, str] = {"messages-tuple": "messages"}


@dataclass(frozen=True)
class RunIdentity:
    """Who a run is; set over whatever the user sends."""

    run_id: str
    thread_id: str
    graph_id: str
    assistant_id: str
    user_id: str
    attempt: int


def run_config(identity: RunIdentity, payload: RunPayload, *, recursion_limit: int) -> RunnableConfig:
    """The RunnableConfig of a run: the user's tags, limits and configurable, with our ids over them.

    Context is merged into configurable, because factories and older graphs look for it there. `recursion_limit` is the
    default, in steps.
    """
    asked = payload.config
    configurable = {**user_configurable(payload.context), **user_configurable(asked.get("configurable"))}
    fork = checkpoint_keys({**_dict(asked.get("configurable")), **(payload.checkpoint or {})})
    ids = {k: getattr(identity, k) for k in ("run_id", "thread_id", "graph_id", "assistant_id", "user_id")}
    config: dict[str, Any] = {k: asked[k] for k in _PASSED if asked.get(k) is not None}
    config["tags"] = [str(tag) for tag in asked.get("tags") or []]
    config["recursion_limit"] = asked.get("recursion_limit") or recursion_limit
    config["configurable"] = {**configurable, **fork, **ids}
    config["metadata"] = run_metadata(identity, {**_dict(asked.get("metadata")), **payload.metadata})
    config["run_id"] = uuid.UUID(identity.run_id)
    return cast(RunnableConfig, config)


def run_metadata(identity: RunIdentity, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The user's metadata under ours: LangGraph itself reads metadata.run_id to tell a resumed run from a new one."""
    return {
        **metadata,
        "run_id": identity.run_id,
        "thread_id": identity.thread_id,
        "graph_id": identity.graph_id,
        "assistant_id": identity.assistant_id,
        "attempt": identity.attempt,
    }


def user_configurable(given: object) -> dict[str, Any]:
    """A user's configurable without the keys reserved for LangGraph and for us."""
    reserved = ("__", "langgraph_")
    return {k: v for k, v in _dict(given).items() if not k.startswith(reserved) and k not in _CHECKPOINT_KEYS}


def checkpoint_keys(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The keys of a checkpoint reference that have a value of their type; `{"configurable": …}` may be around them."""
    inner = _dict((given or {}).get("configurable")) or (given or {})
    types = {"checkpoint_map": dict}
    return {k: inner[k] for k in _CHECKPOINT_KEYS if inner.get(k) and isinstance(inner[k], types.get(k, str))}


def thread_config(thread_id: str, checkpoint: Mapping[str, Any] | None = None) -> RunnableConfig:
    """The config that names a thread's state, at a checkpoint if one is given."""
    return {"configurable": {"checkpoint_ns": "", **checkpoint_keys(checkpoint), "thread_id": thread_id}}


def graph_input(payload: RunPayload) -> Any:
    """What the graph is started with: the command if there is one, else the input."""
    return payload.input if payload.command is None else _command(payload.command)


def user_context(payload: RunPayload, *, has_schema: bool) -> dict[str, Any] | None:
    """The run's static context; a graph with a context schema also takes it from the configurable of older clients."""
    if payload.context:
        return dict(payload.context)
    return user_configurable(payload.config.get("configurable")) if has_schema else None


def stream_modes(asked: list[StreamMode]) -> list[str]:
    """LangGraph's modes for the asked ones, each once. `values` is always there: it makes the result."""
    return list(dict.fromkeys([*(_INTERNAL_MODES.get(mode, mode) for mode in asked), "values"]))


def emitted_modes(asked: list[StreamMode]) -> frozenset[str]:
    """The modes whose events leave the runtime."""
    return frozenset(_INTERNAL_MODES.get(mode, mode) for mode in asked)


def _command(request: CommandRequest) -> Command[Any]:
    if request.empty:
        raise ValueError(EMPTY_COMMAND)
    given = {"update": request.update, "resume": request.resume, "goto": _goto(request.goto)}
    return Command(**{k: v for k, v in given.items() if v is not None})


def _goto(goto: str | SendRequest | list[str | SendRequest] | None) -> Any:
    if goto is None or isinstance(goto, str):
        return goto
    if isinstance(goto, SendRequest):
        return Send(goto.node, goto.input)
    return [_goto(one) for one in goto]


def _dict(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
