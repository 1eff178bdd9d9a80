"""Rows of the tables as frozen dataclasses, and how they are read. Every module of this package returns these."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from runyard_api.states import CancelAction, RunState, Strategy, ThreadState

UNKNOWN_HEAD: dict[str, Any] = {}
"""As a thread's head: there are checkpoints that the row may not show."""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread. `values` is None before the first run; `interrupts` maps a task id to its list of interrupts;
    `head` is the head ThreadState as the API serves it (None: no checkpoint yet; UNKNOWN_HEAD: a run ended without its
    pod, and `values` and `interrupts` may be older than its checkpoints too); `error` is {error, message}; `unfinished`
    counts its pending and running runs, `run_seq` is the newest run's sequence (0: none)."""

    thread_id: str
    user_id: str
    created_at: datetime
    updated_at: datetime
    state_updated_at: datetime | None
    metadata: dict[str, Any]
    config: dict[str, Any]
    status: ThreadState
    values: Any
    interrupts: dict[str, Any]
    error: dict[str, Any] | None
    head: dict[str, Any] | None
    graph_id: str | None
    run_seq: int
    unfinished: int

    @property
    def head_unknown(self) -> bool:
        return self.head == UNKNOWN_HEAD


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. `payload` is runyard_api.payload.RunPayload as JSON; `result` the final values (with `__interrupt__`
    when a human is asked), None until it ended; `error` is {error, message}; `attempt` 0 means never claimed;
    `event_base` 0 likewise; `object_uid` is the Run object's uid, None while there is none; `not_before` None: at once.
    """

    run_id: str
    thread_id: str
    user_id: str
    assistant_id: str
    graph_id: str
    agent_name: str
    sequence: int
    status: RunState
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    failures: int
    event_base: int
    metadata: dict[str, Any]
    payload: dict[str, Any]
    multitask_strategy: Strategy
    on_disconnect: str
    temporary: bool
    object_uid: str | None
    object_made_at: datetime | None
    cancel_action: CancelAction | None
    cancel_reason: str | None
    result: Any
    error: dict[str, Any] | None
    not_before: datetime | None = None


_THREAD_FIELDS = [f.name for f in fields(ThreadRow)]
_RUN_FIELDS = [f.name for f in fields(RunRow)]


def thread_row(row: Mapping[Any, Any]) -> ThreadRow:
    """Reads a row of `threads`."""
    values = {name: row[name] for name in _THREAD_FIELDS}
    values["status"] = ThreadState(values["status"])
    return ThreadRow(**values)


def run_row(row: Mapping[Any, Any]) -> RunRow:
    """Reads a row of `runs`."""
    values = {name: row[name] for name in _RUN_FIELDS}
    values["status"] = RunState(values["status"])
    values["multitask_strategy"] = Strategy(values["multitask_strategy"])
    values["cancel_action"] = CancelAction(values["cancel_action"]) if values["cancel_action"] else None
    return RunRow(**values)


def resting_status(thread: ThreadRow) -> ThreadState:
    """The status of a thread without unfinished runs, from what its last run left: error, interrupted or idle."""
    if thread.error:
        return ThreadState.ERROR
    waiting = bool(thread.interrupts) or bool((thread.head or {}).get("next"))
    return ThreadState.INTERRUPTED if waiting else ThreadState.IDLE
