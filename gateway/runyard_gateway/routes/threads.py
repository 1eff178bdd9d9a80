"""Threads: create and read."""

from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Query, Response

from runyard_api.wire import ThreadCreate
from runyard_api.wire_views import ThreadView
from runyard_gateway.auth import User
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Ctx
from runyard_gateway.intake import refuse_unsupported
from runyard_gateway.views import thread_view
from runyard_store import threads

router = APIRouter(prefix="/threads", tags=["Threads"], route_class=StrictRoute)


@router.post("", response_model=ThreadView)
async def create_thread(ctx: Ctx, user: User, body: ThreadCreate | None = None) -> Response:
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
async def get_thread(
    thread_id: UUID, ctx: Ctx, user: User, include: Annotated[list[str] | None, Query()] = None
) -> Response:
    """One thread. `include` is a hint: there is nothing to leave out."""
    return JsonResponse(thread_view(await threads.get_thread(ctx.db, str(thread_id), user)))
