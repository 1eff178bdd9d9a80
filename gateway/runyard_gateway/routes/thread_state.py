"""Thread states: the newest, at a checkpoint, the history, and updates."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from runyard_api.wire import CheckpointRef, HistoryRead, StateAtCheckpoint, StateWrite
from runyard_api.wire_views import ThreadStateView
from runyard_gateway.auth import User
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Ctx
from runyard_store.threads import ThreadRow, get_thread

router = APIRouter(prefix="/threads/{thread_id}", tags=["Threads"], route_class=StrictRoute)
Subgraphs = Annotated[bool, Query(description="Show the states of running subgraphs inside the tasks.")]


async def _thread(ctx: Ctx, thread_id: UUID, user: str) -> ThreadRow:
    return await get_thread(ctx.db, str(thread_id), user)


@router.get("/state", response_model=ThreadStateView)
async def get_state(thread_id: UUID, ctx: Ctx, user: User, subgraphs: Subgraphs = False) -> Response:
    """The newest state."""
    thread = await _thread(ctx, thread_id, user)
    return JsonResponse(await ctx.states.current(thread, subgraphs=subgraphs))


@router.post("/state/checkpoint", response_model=ThreadStateView)
async def get_state_at(thread_id: UUID, ctx: Ctx, user: User, body: StateAtCheckpoint) -> Response:
    """The state at a checkpoint given as an object."""
    thread = await _thread(ctx, thread_id, user)
    return JsonResponse(await ctx.states.at(thread, body.checkpoint, subgraphs=bool(body.subgraphs)))


@router.get("/state/{checkpoint_id}", response_model=ThreadStateView)
async def get_state_at_id(
    thread_id: UUID, checkpoint_id: str, ctx: Ctx, user: User, subgraphs: Subgraphs = False
) -> Response:
    """The state at a checkpoint given by its id."""
    thread = await _thread(ctx, thread_id, user)
    ref = CheckpointRef(checkpoint_id=checkpoint_id)
    return JsonResponse(await ctx.states.at(thread, ref, subgraphs=subgraphs))


@router.post("/state")
async def update_state(thread_id: UUID, ctx: Ctx, user: User, body: StateWrite) -> Response:
    """Writes values to the thread as if a node had."""
    return JsonResponse(await ctx.states.update(await _thread(ctx, thread_id, user), body))


@router.post("/history", response_model=list[ThreadStateView])
async def read_history(thread_id: UUID, ctx: Ctx, user: User, body: HistoryRead | None = None) -> Response:
    """States of the thread, newest first."""
    return JsonResponse(await ctx.states.history(await _thread(ctx, thread_id, user), body or HistoryRead()))


@router.get("/history", response_model=list[ThreadStateView])
async def list_history(
    thread_id: UUID,
    ctx: Ctx,
    user: User,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1,
    before: Annotated[str | None, Query(description="A checkpoint id.")] = None,
) -> Response:
    """As POST, with the two commonest options."""
    body = HistoryRead(limit=limit, before=before)
    return JsonResponse(await ctx.states.history(await _thread(ctx, thread_id, user), body))
