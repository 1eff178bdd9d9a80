"""Many threads at once: search, count, prune. Its paths come before /threads/{thread_id}."""

from fastapi import APIRouter, Response

from runyard_api.errors import Invalid, NotFound
from runyard_api.wire import ThreadCount, ThreadSearch, ThreadsPrune
from runyard_api.wire_views import ThreadView, some_of
from runyard_gateway.auth import User
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Ctx
from runyard_gateway.extract import extracted, paths_of
from runyard_gateway.paging import page, selected, total_of
from runyard_gateway.views import thread_view
from runyard_store.deletion import delete_thread
from runyard_store.thread_search import ThreadFilter, ThreadPage, count_threads, search_threads

router = APIRouter(prefix="/threads", tags=["Threads"], route_class=StrictRoute)


@router.post("/search", response_model=some_of(ThreadView))
async def search(ctx: Ctx, user: User, body: ThreadSearch | None = None) -> Response:
    """Threads that match the filters, a page at a time, the newest first."""
    body = body or ThreadSearch()
    paths = paths_of(body.extract or {})
    wanted, where = _filter(body, user), _page(body)
    rows = await search_threads(ctx.db, wanted, where)
    total = total_of(rows, limit=where.limit, offset=where.offset)
    if total is None:
        total = await count_threads(ctx.db, wanted)
    views = [thread_view(row) for row in rows]
    items = selected(views, body.select)
    if paths:
        items = [item | {"extracted": extracted(view, paths)} for item, view in zip(items, views, strict=True)]
    return page(items, total=total, offset=where.offset)


@router.post("/count", response_model=int)
async def count(ctx: Ctx, user: User, body: ThreadCount | None = None) -> Response:
    """How many threads match the filters."""
    return JsonResponse(await count_threads(ctx.db, _filter(body or ThreadCount(), user)))


@router.post("/prune", response_model=dict[str, int])
async def prune(ctx: Ctx, user: User, body: ThreadsPrune) -> Response:
    """Deletes those of the threads that are there, and tells how many."""
    if body.strategy == "keep_latest":
        raise Invalid("strategy: 'keep_latest' is not supported by this server; use delete")
    pruned = 0
    for thread_id in dict.fromkeys(body.thread_ids):
        try:
            ctx.handover.remove(await delete_thread(ctx.db, str(thread_id), user))
        except NotFound:
            continue
        pruned += 1
    return JsonResponse({"pruned_count": pruned})


def _filter(body: ThreadCount, user: str) -> ThreadFilter:
    ids = body.ids if isinstance(body, ThreadSearch) else None
    return ThreadFilter(
        user_id=user,
        ids=None if ids is None else [str(thread_id) for thread_id in ids],
        metadata=body.metadata or {},
        values=body.values or {},
        status=body.status,
    )


def _page(body: ThreadSearch) -> ThreadPage:
    read = body.select is None or "values" in body.select
    return ThreadPage(
        limit=body.limit or 10,
        offset=body.offset or 0,
        sort_by=body.sort_by or "created_at",
        descending=body.sort_order != "asc",
        copies=1 + len(body.extract or {}),
        with_values=read or any(path.startswith("values") for path in (body.extract or {}).values()),
    )
