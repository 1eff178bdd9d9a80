"""System assistants: read-only, one for each graph."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response

from runyard_api.wire import AssistantSearch
from runyard_api.wire_views import AssistantView, some_of
from runyard_gateway.assistants import by_id, search
from runyard_gateway.body import JsonResponse, StrictRoute
from runyard_gateway.context import Ctx
from runyard_gateway.paging import page, selected
from runyard_gateway.schemas import schemas_of

router = APIRouter(prefix="/assistants", tags=["Assistants"], route_class=StrictRoute)


@router.post("/search", response_model=some_of(AssistantView))
async def search_assistants(ctx: Ctx, body: AssistantSearch | None = None) -> Response:
    """Assistants that match the filters, a page at a time."""
    body = body or AssistantSearch()
    found = search(ctx.runs.agents(), body)
    offset, limit = body.offset or 0, body.limit or 10
    views = selected([a.view() for a in found[offset : offset + limit]], body.select)
    return page(views, total=len(found), offset=offset)


@router.post("/count", response_model=int)
async def count_assistants(ctx: Ctx, body: AssistantSearch | None = None) -> Response:
    """How many assistants match the filters."""
    return JsonResponse(len(search(ctx.runs.agents(), body or AssistantSearch())))


@router.get("/{assistant_id}", response_model=AssistantView)
async def get_assistant(assistant_id: UUID, ctx: Ctx) -> Response:
    """One assistant by its id."""
    return JsonResponse(by_id(ctx.runs.agents(), assistant_id).view())


@router.get("/{assistant_id}/schemas", response_model=dict[str, Any])
async def get_schemas(assistant_id: UUID, ctx: Ctx) -> Response:
    """The JSON schemas of the assistant's graph."""
    assistant = by_id(ctx.runs.agents(), assistant_id)
    return JsonResponse(await schemas_of(ctx.db, ctx.runs, assistant))
