"""From rows of the store to the shapes of the public API. Pure; used by the routes."""

from datetime import datetime
from typing import Any

from runyard_api.internal import RunError
from runyard_api.wire_views import RunView, ThreadStateView, ThreadView
from runyard_store.runs import RunRow
from runyard_store.threads import ThreadRow


def thread_view(row: ThreadRow) -> ThreadView:
    """A thread as GET /threads/{id} shows it. Values that may be older than its state aren't shown: they are null."""
    known = not row.head_unknown
    view = ThreadView(
        thread_id=row.thread_id,
        created_at=row.created_at.isoformat(),
        updated_at=row.updated_at.isoformat(),
        state_updated_at=_time(row.state_updated_at),
        metadata=row.metadata,
        config=row.config,
        status=row.status,
        values=row.values if known else None,
        interrupts=row.interrupts if known else {},
    )
    if row.error:
        view["error"] = row.error
    return view


def run_view(row: RunRow) -> RunView:
    """A run as GET /threads/{id}/runs/{id} shows it."""
    return RunView(
        run_id=row.run_id,
        thread_id=row.thread_id,
        assistant_id=row.assistant_id,
        created_at=row.created_at.isoformat(),
        updated_at=row.updated_at.isoformat(),
        status=row.status,
        metadata=row.metadata,
        kwargs=_kwargs(row),
        multitask_strategy=row.multitask_strategy,
    )


def _kwargs(row: RunRow) -> dict[str, Any]:
    payload = row.payload
    same = ("input", "command", "config", "context", "stream_mode", "interrupt_before", "interrupt_after", "durability")
    return {
        **{name: payload.get(name) for name in same},
        "checkpoint": payload.get("checkpoint"),
        "subgraphs": payload.get("stream_subgraphs", False),
        "resumable": True,
        "temporary": row.temporary,
        "checkpoint_during": payload.get("durability") != "exit",
        "webhook": None,
        "feedback_keys": None,
    }


def fresh_state() -> ThreadStateView:
    """The state of a thread that no run has touched: chat UIs test for the null checkpoint."""
    return ThreadStateView(
        values={}, next=[], tasks=[], metadata={}, created_at=None, checkpoint=None,
        parent_checkpoint=None, interrupts=[], checkpoint_id=None, parent_checkpoint_id=None,
    )  # fmt: skip


def state_view(state: dict[str, Any]) -> dict[str, Any]:
    """A state with the two deprecated ids that older clients read."""
    return {
        **state,
        "checkpoint_id": (state.get("checkpoint") or {}).get("checkpoint_id"),
        "parent_checkpoint_id": (state.get("parent_checkpoint") or {}).get("checkpoint_id"),
    }


def outcome(row: RunRow) -> Any:
    """What wait and join answer for a finished run: its final values, or `{"__error__": {error, message}}`."""
    return failed_outcome(RunError(**row.error)) if row.error else row.result


def failed_outcome(error: RunError) -> dict[str, Any]:
    return {"__error__": {"error": error.error, "message": error.message}}


def _time(value: datetime | None) -> str | None:
    return value.isoformat() if value else None
