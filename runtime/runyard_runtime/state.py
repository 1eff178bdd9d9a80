"""A LangGraph StateSnapshot as the ThreadState of the public API, and what a thread's row shows of it. Pure.

Called on the graph thread by `execution.py` (the end of a run) and `threads.py` (state, history, update).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from langgraph.types import PregelTask, StateSnapshot

from runyard_api.states import ThreadState
from runyard_runtime.serialize import dumps, interrupt_json


@dataclass(frozen=True)
class Shown:
    """What the thread row shows: JSON documents, and the status that the state itself gives (idle or interrupted)."""

    values: bytes
    interrupts: bytes
    head: bytes
    status: ThreadState


def shown(snapshot: StateSnapshot) -> Shown:
    """The row's view of a head state."""
    values = dumps(snapshot.values or {})
    waiting = {t.id: [interrupt_json(i) for i in t.interrupts] for t in snapshot.tasks if t.interrupts}
    status = ThreadState.INTERRUPTED if snapshot.next or waiting else ThreadState.IDLE
    head = dumps(thread_state(snapshot, orjson.Fragment(values)))
    return Shown(values=values, interrupts=dumps(waiting), head=head, status=status)


def thread_state(snapshot: StateSnapshot, values: Any = None) -> dict[str, Any]:
    """A ThreadState: values, next, tasks, metadata, created_at, checkpoint, parent_checkpoint, interrupts, and the
    deprecated checkpoint_id and parent_checkpoint_id. `values` may be given as ready JSON."""
    checkpoint = checkpoint_of(snapshot.config) if snapshot.created_at else None
    parent = checkpoint_of(snapshot.parent_config)
    return {
        "values": snapshot.values or {} if values is None else values,
        "next": list(snapshot.next),
        "tasks": [_task(task) for task in snapshot.tasks],
        "metadata": dict(snapshot.metadata or {}),
        "created_at": snapshot.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": [interrupt_json(i) for i in snapshot.interrupts],
        "checkpoint_id": checkpoint and checkpoint.get("checkpoint_id"),
        "parent_checkpoint_id": parent and parent.get("checkpoint_id"),
    }


def checkpoint_of(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The checkpoint reference in a config: thread_id, checkpoint_ns, checkpoint_id; checkpoint_map if it has one."""
    given = (config or {}).get("configurable")
    if not given:
        return None
    reference = {"thread_id": given.get("thread_id"), "checkpoint_ns": given.get("checkpoint_ns", "")}
    return {**reference, **{k: given[k] for k in ("checkpoint_id", "checkpoint_map") if given.get(k)}}


def _task(task: PregelTask) -> dict[str, Any]:
    nested = task.state if isinstance(task.state, StateSnapshot) else None
    where = nested.config if nested else task.state
    return {
        "id": task.id,
        "name": task.name,
        "path": list(task.path),
        "error": None if task.error is None else _error_text(task.error),
        "interrupts": [interrupt_json(i) for i in task.interrupts],
        "checkpoint": checkpoint_of(where if isinstance(where, Mapping) else None),
        "state": thread_state(nested) if nested else None,
        "result": task.result,
    }


def _error_text(error: object) -> str:
    return error if isinstance(error, str) else repr(error)
