"""Threads: create, read, change, copy, delete."""

from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Header, Query, Response

from runyard_api.errors import Invalid
from runyard_api.wire import ThreadCreate, ThreadPatch
from runyard_api.wire_views import ThreadView
from runyard_gateway.auth import User
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Ctx
from runyard_gateway.intake import refuse_unsupported
from runyard_gateway.views import thread_view
from runyard_store import threads
from runyard_store.copying import copy_thread
from runyard_store.deletion import delete_thread
from runyard_store.thread_changes import merge_metadata

router = APIRouter(prefix="/threads", tags=["Threads"], route_class=StrictRoute)


@router.post("", response_model=ThreadView)
async def create(ctx: Ctx, user: User, body: ThreadCreate | None = None) -> Response:
    """Makes a thread; `if_exists` do_nothing answers with the one there is."""
    body = body or ThreadCreate()
    refuse_unsupported(body.unsupported())
    row = await threads.create_thread(
        ctx.db,
        thread_id=str(body.thread_id or uuid4()),
        user_id=user,
        metadata=body.metadata or {},
        if_exists=body.if_exists or "raise",
        now=ctx.now(),
    )
    return JsonResponse(thread_view(row))


@router.get("/{thread_id}", response_model=ThreadView)
async def get(thread_id: UUID, ctx: Ctx, user: User, include: Annotated[list[str] | None, Query()] = None) -> Response:
    """One thread. Nothing can be included beyond what is always there."""
    if include:
        raise Invalid(f"include: {', '.join(include)}: not supported by this server")
    row = await threads.get_thread(ctx.db, str(thread_id), user)
    return JsonResponse(thread_view(await ctx.states.known(row)))


@router.patch("/{thread_id}", response_model=ThreadView)
async def change(
    thread_id: UUID,
    ctx: Ctx,
    user: User,
    body: ThreadPatch | None = None,
    prefer: Annotated[str | None, Header(description="return=minimal: answer with 204 and nothing more.")] = None,
) -> Response:
    """Sets keys of the thread's metadata; the others stay."""
    body = body or ThreadPatch()
    refuse_unsupported(body.unsupported())
    row = await merge_metadata(ctx.db, str(thread_id), user, body.metadata or {}, ctx.now())
    if "return=minimal" in (prefer or "").replace(" ", "").lower():
        return Response(status_code=204)
    return JsonResponse(thread_view(row))


@router.delete("/{thread_id}", status_code=204)
async def delete(thread_id: UUID, ctx: Ctx, user: User) -> Response:
    """Removes the thread with its runs, states and events; a run under way is stopped and writes nothing more."""
    ctx.handover.remove(await delete_thread(ctx.db, str(thread_id), user))
    return Response(status_code=204)


@router.post("/{thread_id}/copy", response_model=ThreadView)
async def copy(thread_id: UUID, ctx: Ctx, user: User) -> Response:
    """A new idle thread with the same metadata, state and history. 409 while a run is at work on the thread."""
    return JsonResponse(thread_view(await copy_thread(ctx.db, str(thread_id), user, str(uuid4()), ctx.now())))
