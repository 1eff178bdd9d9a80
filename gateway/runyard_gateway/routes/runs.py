"""Runs of a thread: list, read, join, stream again, cancel."""

from collections.abc import Sequence
from typing import Annotated, get_args
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Query, Response
from structlog.contextvars import bind_contextvars

from runyard_api.errors import Invalid, NotFound
from runyard_api.events import EventId, resume_point
from runyard_api.payload import SMALL_INT
from runyard_api.states import CancelAction, RunState
from runyard_api.wire import WireStreamMode
from runyard_api.wire_views import RunView, some_of
from runyard_gateway.answers import missing_stream, run_path, stream_answer, wait_answer
from runyard_gateway.auth import User
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Context, Ctx
from runyard_gateway.paging import page, selected, total_of
from runyard_gateway.views import run_view
from runyard_store.deletion import RemovedRun, delete_finished_run
from runyard_store.runs import RunRow, count_runs, get_run, list_runs
from runyard_store.threads import get_thread

router = APIRouter(prefix="/threads/{thread_id}/runs", tags=["Thread Runs"], route_class=StrictRoute)
NOTHING_TO_CANCEL = "No matching runs to cancel: no run of this thread has the id, or it has finished."
CancelOnDisconnect = Annotated[bool, Query(description="Interrupt the run when this request's connection closes.")]


@router.get("", response_model=some_of(RunView))
async def list_of_thread(
    thread_id: UUID,
    ctx: Ctx,
    user: User,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    offset: Annotated[int, Query(ge=0, le=SMALL_INT)] = 0,
    status: Annotated[RunState | None, Query()] = None,
    select: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """Runs of a thread, newest first."""
    thread = await get_thread(ctx.db, str(thread_id), user)
    rows = await list_runs(ctx.db, thread.thread_id, user, limit, offset, status)
    views = selected([run_view(row) for row in rows], select)
    total = total_of(rows, limit=limit, offset=offset)
    if total is None:
        total = await count_runs(ctx.db, thread.thread_id, user, status)
    return page(views, total=total, offset=offset)


@router.get("/{run_id}", response_model=RunView)
async def get(thread_id: UUID, run_id: UUID, ctx: Ctx, user: User) -> Response:
    """One run."""
    return JsonResponse(run_view(await _run(ctx, thread_id, run_id, user)))


@router.delete("/{run_id}", status_code=204)
async def delete(thread_id: UUID, run_id: UUID, ctx: Ctx, user: User) -> Response:
    """Removes a finished run with its events; the thread's state stays. 409 while the run is unfinished."""
    await delete_finished_run(ctx.db, str(run_id), str(thread_id), user)
    ctx.handover.remove([RemovedRun(str(run_id), str(thread_id), unfinished=False)])
    return Response(status_code=204)


@router.get("/{run_id}/join")
async def join(
    thread_id: UUID, run_id: UUID, ctx: Ctx, user: User, cancel_on_disconnect: CancelOnDisconnect = False
) -> Response:
    """The run's final values once it has finished; of a run that doesn't exist an `__error__`, with status 200."""
    try:
        run = await _run(ctx, thread_id, run_id, user)
    except NotFound as error:
        return JsonResponse({"__error__": {"error": "NotFound", "message": f"404: {error.detail}"}})
    return wait_answer(
        ctx,
        run,
        cancel_if_left=cancel_on_disconnect,
        headers={"content-location": run_path(run), "location": f"{run_path(run)}/join"},
    )


@router.get("/{run_id}/stream")
async def stream(
    thread_id: UUID,
    run_id: UUID,
    ctx: Ctx,
    user: User,
    stream_mode: Annotated[list[str] | None, Query(description="Repeated, or one JSON array.")] = None,
    cancel_on_disconnect: CancelOnDisconnect = False,
    last_event_id: Annotated[str | None, Header(description="Go on after this id; -1: from the start.")] = None,
) -> Response:
    """The run's events: those after the given id, or without one only those to come."""
    modes = modes_of(stream_mode or ())
    after = after_of(last_event_id)
    try:
        run = await _run(ctx, thread_id, run_id, user)
    except NotFound as error:
        return missing_stream(ctx, error.detail)
    return stream_answer(
        ctx,
        run,
        modes=modes,
        after=after,
        # A run that hasn't begun has emitted nothing: its first event is still to come.
        live=last_event_id is None and run.status is not RunState.PENDING,
        cancel_if_left=cancel_on_disconnect,
        headers={"content-location": run_path(run), "location": f"{run_path(run)}/stream"},
    )


@router.post("/{run_id}/cancel")
async def cancel(
    thread_id: UUID,
    run_id: UUID,
    ctx: Ctx,
    user: User,
    wait: Annotated[bool, Query(description="Answer only when the run has stopped.")] = False,
    action: Annotated[CancelAction, Query()] = CancelAction.INTERRUPT,
    reason: Annotated[str, Query(max_length=256)] = "",
) -> Response:
    """Stops an unfinished run: 202 at once, or 200 once it has stopped."""
    try:
        run = await _run(ctx, thread_id, run_id, user)
    except NotFound as error:
        raise NotFound(NOTHING_TO_CANCEL) from error
    if run.status.finished:
        raise NotFound(NOTHING_TO_CANCEL)
    await ctx.handover.cancel(run, action, reason)
    if not wait:
        return Response(status_code=202)
    return wait_answer(ctx, run, cancel_if_left=False, headers={}, empty=True)


async def _run(ctx: Context, thread_id: UUID, run_id: UUID, user: str) -> RunRow:
    bind_contextvars(run=str(run_id), thread=str(thread_id))
    return await get_run(ctx.db, str(run_id), str(thread_id), user)


def after_of(last_event_id: str | None) -> EventId | None:
    """Where a reader goes on. Raises Invalid for what no event of ours can have as its id."""
    try:
        after = resume_point(last_event_id)
    except ValueError as error:
        raise Invalid(f"Last-Event-ID: {error}") from error
    if after is not None and after.seq >= 2**63:
        raise Invalid("Last-Event-ID: the sequence is larger than any event's")
    return after


def modes_of(given: Sequence[str]) -> list[str]:
    """The modes of a query in every form that SDKs send: the key repeated, a JSON array, or comma-separated.

    Raises Invalid for a mode that doesn't exist.
    """
    modes = [mode for text in given for mode in _modes_in(text)]
    allowed = get_args(WireStreamMode)
    for mode in modes:
        if mode not in allowed:
            raise Invalid(f"stream_mode: {mode!r} is none of {', '.join(allowed)}")
    return modes


def _modes_in(text: str) -> list[str]:
    if not text.startswith("["):
        return [mode.strip() for mode in text.split(",") if mode.strip()]
    try:
        listed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Invalid("stream_mode: is no JSON array of modes") from error
    if not all(isinstance(mode, str) for mode in listed):
        raise Invalid("stream_mode: is no JSON array of modes")
    return list(listed)
