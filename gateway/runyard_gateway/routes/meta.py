"""Probes and facts about the server."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from runyard_api.errors import Unavailable
from runyard_api.wire_views import InfoView
from runyard_gateway.body import JsonResponse
from runyard_gateway.context import Ctx
from runyard_gateway.failures import failure
from runyard_store.migrate import require_schema

router = APIRouter(tags=["Meta"])


@router.get("/")
@router.get("/ok")
async def ok(request: Request, ctx: Ctx, check_db: Annotated[bool, Query()] = False) -> Response:
    """Whether the server takes requests (503: it is overloaded) and, with check_db, whether its database does (500)."""
    if request.app.state.load.overloaded:
        return failure(503, "The server is at work on as many requests as it takes at once.", {"Retry-After": "1"})
    if check_db:
        try:
            await require_schema(ctx.db)
        except Unavailable as error:
            return failure(500, error.detail)
    return JsonResponse({"ok": True, "services": {}})


@router.get("/info", response_model=InfoView)
async def info() -> Response:
    """Versions, and which parts of the LangGraph API are here."""
    flags = {
        "assistants": True,
        "crons": False,
        "langsmith": False,
        "langsmith_tracing_replicas": False,
        "langsmith_tracing_session_on_runs": False,
    }
    host = dict.fromkeys(("project_id", "host_revision_id", "revision_id", "tenant_id"))
    return JsonResponse(
        InfoView(
            version=_version("runyard"),
            langgraph_py_version=_version("langgraph"),
            flags=flags,
            host={"kind": "self-hosted", **host},
        )
    )


def _version(package: str) -> str:
    """The version installed here; in a cluster LangGraph is in the agents' images alone."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
