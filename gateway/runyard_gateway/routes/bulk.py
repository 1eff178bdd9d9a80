"""Many runs at once: start a batch, cancel all or some."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from runyard_api.errors import NotFound
from runyard_api.states import CancelAction
from runyard_api.wire import RunCreate, RunsCancel
from runyard_api.wire_views import RunView
from runyard_gateway.auth import User
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Ctx
from runyard_gateway.routes.runs import NOTHING_TO_CANCEL
from runyard_gateway.routes.submission import start_all
from runyard_gateway.views import run_view
from runyard_store.runs import request_cancels
from runyard_store.threads import get_thread

router = APIRouter(prefix="/runs", route_class=StrictRoute)


@router.post("/batch", response_model=list[RunView], tags=["Stateless Runs"])
async def batch(body: Annotated[list[RunCreate], Body(min_length=1, max_length=100)], ctx: Ctx, user: User) -> Response:
    """Starts runs on threads of their own, all or, when one of the bodies is refused, none."""
    return JsonResponse([run_view(run) for run in await start_all(ctx, body, user)])


@router.post("/cancel", status_code=204, tags=["Thread Runs"])
async def cancel(
    body: RunsCancel, ctx: Ctx, user: User, action: Annotated[CancelAction, Query()] = CancelAction.INTERRUPT
) -> Response:
    """Stops the user's unfinished runs: all with a status, or some of one thread; doesn't wait for them."""
    thread_id = str(body.thread_id) if body.thread_id else None
    if thread_id:
        await get_thread(ctx.db, thread_id, user)
    run_ids = [str(run_id) for run_id in body.run_ids] if body.run_ids else None
    rows = await request_cancels(
        ctx.db, user_id=user, thread_id=thread_id, run_ids=run_ids, states=body.states(), action=action
    )
    if thread_id and not rows:
        raise NotFound(NOTHING_TO_CANCEL)
    ctx.handover.tell_cancelled(rows)
    return Response(status_code=204)
