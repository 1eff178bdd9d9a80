"""Rows, runs, claims and ends with sensible defaults, for tests that use the store. Nothing is stored by itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from runyard_api.events import Event, EventId
from runyard_api.payload import RunPayload
from runyard_api.states import RunState, Strategy, ThreadState
from runyard_store.database import Database
from runyard_store.finish import Finish
from runyard_store.leases import Claim, claim_run
from runyard_store.runs import NewRun, RunRow, create_run

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
USER = "u1"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def run_row(**changes: Any) -> RunRow:
    """A pending run's row, in memory alone."""
    row = RunRow(
        run_id="run",
        thread_id="thread",
        user_id=USER,
        assistant_id="assistant",
        graph_id="graph",
        agent_name="agent",
        sequence=1,
        status=RunState.PENDING,
        created_at=NOW,
        updated_at=NOW,
        started_at=None,
        ended_at=None,
        attempt=0,
        failures=0,
        event_base=0,
        metadata={},
        payload={},
        multitask_strategy=Strategy.ENQUEUE,
        on_disconnect="continue",
        temporary=False,
        object_uid=None,
        object_made_at=None,
        cancel_action=None,
        cancel_reason=None,
        result=None,
        error=None,
    )
    return replace(row, **changes)


def new_run(thread_id: str | None = None, **changes: Any) -> NewRun:
    """A run to admit that makes its thread if it must."""
    run = NewRun(
        run_id=str(uuid4()),
        thread_id=thread_id or str(uuid4()),
        user_id=USER,
        assistant_id="assistant",
        graph_id="graph",
        agent_name="agent",
        payload=RunPayload(input={"messages": []}),
        if_not_exists="create",
    )
    return replace(run, **changes)


async def stored_run(db: Database, thread_id: str | None = None, **changes: Any) -> RunRow:
    return await create_run(db, new_run(thread_id, **changes), NOW)


async def claimed(db: Database, run: RunRow, attempt: int = 1, holder: str = "pod-a", now_ms: int = NOW_MS) -> Claim:
    return await claim_run(db, run_id=run.run_id, attempt=attempt, holder=holder, now_ms=now_ms)


def events(claim: Claim, *numbers: int, mode: str = "values") -> list[Event]:
    """Events of the claim's attempt with these numbers."""
    run = claim.run
    return [Event(EventId.of(run.event_base, run.attempt, n), mode, (), b'{"n":%d}' % n) for n in numbers]


def finish_of(claim: Claim, **changes: Any) -> Finish:
    """A successful end with one last event."""
    finish = Finish(
        run_id=claim.run.run_id,
        thread_id=claim.run.thread_id,
        epoch=claim.epoch,
        attempt=claim.run.attempt,
        state=RunState.SUCCESS,
        result={"answer": 42},
        error=None,
        values={"answer": 42},
        interrupts={},
        head={"values": {"answer": 42}, "next": []},
        thread_status=ThreadState.IDLE,
        last_events=events(claim, 999, mode="end"),
        now=later(2),
    )
    return replace(finish, **changes)
