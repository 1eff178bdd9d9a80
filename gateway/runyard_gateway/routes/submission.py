"""Creating runs, on a thread and stateless, and answering with the run, its stream or its outcome."""

import secrets
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import structlog
from fastapi import APIRouter, Response
from structlog.contextvars import bind_contextvars

from runyard_api.wire import RunCreate
from runyard_api.wire_views import RunView
from runyard_gateway.answers import held, run_answer, run_path, stream_answer, wait_answer
from runyard_gateway.assistants import resolve
from runyard_gateway.auth import User
from runyard_gateway.body import StrictRoute
from runyard_gateway.context import Context, Ctx
from runyard_gateway.following import patiently
from runyard_gateway.ids import uuid7
from runyard_gateway.intake import Place, new_run
from runyard_store.runs import NewRun, RunRow, create_run

log = structlog.get_logger(__name__)
router = APIRouter(route_class=StrictRoute)
THREADED, STATELESS = "Thread Runs", "Stateless Runs"


@router.post("/threads/{thread_id}/runs", response_model=RunView, tags=[THREADED])
async def create(thread_id: UUID, body: RunCreate, ctx: Ctx, user: User) -> Response:
    """Starts a run and answers at once."""
    run = await _start(ctx, body, user, thread_id)
    return run_answer(run, run_path(run))


@router.post("/threads/{thread_id}/runs/stream", tags=[THREADED])
async def create_and_stream(thread_id: UUID, body: RunCreate, ctx: Ctx, user: User) -> Response:
    """Starts a run and streams its events."""
    run = await _start(ctx, body, user, thread_id)
    return _stream(ctx, run, run_path(run))


@router.post("/threads/{thread_id}/runs/wait", tags=[THREADED])
async def create_and_wait(thread_id: UUID, body: RunCreate, ctx: Ctx, user: User) -> Response:
    """Starts a run and answers with its final values."""
    return _wait(ctx, await _start(ctx, body, user, thread_id))


@router.post("/runs", response_model=RunView, tags=[STATELESS])
async def create_stateless(body: RunCreate, ctx: Ctx, user: User) -> Response:
    """Starts a run on a thread of its own and answers at once."""
    run = await _start(ctx, body, user, None)
    return run_answer(run, f"/runs/{run.run_id}")


@router.post("/runs/stream", tags=[STATELESS])
async def stream_stateless(body: RunCreate, ctx: Ctx, user: User) -> Response:
    """Starts a run on a thread of its own and streams its events."""
    run = await _start(ctx, body, user, None)
    return _stream(ctx, run, f"/runs/{run.run_id}")


@router.post("/runs/wait", tags=[STATELESS])
async def wait_stateless(body: RunCreate, ctx: Ctx, user: User) -> Response:
    """Starts a run on a thread of its own and answers with its final values."""
    return _wait(ctx, await _start(ctx, body, user, None))


async def start_all(ctx: Context, bodies: Sequence[RunCreate], user: str) -> list[RunRow]:
    """Starts stateless runs. Once the first is committed, all are, however long the database takes."""
    first, *others = [_new(ctx, body, user, None) for body in bodies]
    started = [await _commit(ctx, first)]
    for new in others:
        started.append(await patiently(partial(_commit, ctx, new), what="database"))
    return started


async def _start(ctx: Context, body: RunCreate, user: str, thread_id: UUID | None) -> RunRow:
    return await _commit(ctx, _new(ctx, body, user, thread_id))


def _new(ctx: Context, body: RunCreate, user: str, thread_id: UUID | None) -> NewRun:
    assistant = resolve(ctx.runs.agents(), body.assistant_id)
    now = ctx.now()
    run_id, own_thread = (uuid7(int(now.timestamp() * 1000), secrets.token_bytes(10)) for _ in range(2))
    place = Place(str(run_id), str(thread_id or own_thread), user, stateless=thread_id is None)
    return new_run(body, assistant, place, now)


async def _commit(ctx: Context, new: NewRun) -> RunRow:
    """Commits the run and hands it over. From the commit on the answer is 200, whatever happens to the run."""
    run = await create_run(ctx.db, new, ctx.now())
    bind_contextvars(run=run.run_id, thread=run.thread_id)
    log.info("run created", graph=run.graph_id, agent=run.agent_name, sequence=run.sequence)
    ctx.handover.submit(held(run))
    return run


def _stream(ctx: Context, run: RunRow, content_location: str) -> Response:
    return stream_answer(
        ctx,
        run,
        cancel_if_left=run.on_disconnect == "cancel",
        headers={"content-location": content_location, "location": f"{run_path(run)}/stream"},
    )


def _wait(ctx: Context, run: RunRow) -> Response:
    return wait_answer(
        ctx,
        run,
        cancel_if_left=run.on_disconnect == "cancel",
        headers={"content-location": run_path(run), "location": f"{run_path(run)}/join"},
    )
