"""The three ways a run is answered: its row, its event stream, its outcome once it has finished; with their headers.

Used by the run routes; puts together relay, render, following and streaming.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from runyard_api.events import EventId
from runyard_api.wire_views import RunView
from runyard_gateway.body import JsonResponse, to_json
from runyard_gateway.context import Context
from runyard_gateway.following import finished_row
from runyard_gateway.relay import Relay
from runyard_gateway.render import HEARTBEAT, Renderer, Wanted, error_frame
from runyard_gateway.streaming import Heartbeat, LiveResponse, Sink
from runyard_gateway.views import outcome, run_view
from runyard_store.runs import RunRow

EVENT_STREAM = "text/event-stream; charset=utf-8"
_UNCACHED = {"cache-control": "no-store", "x-accel-buffering": "no"}


def run_path(run: RunRow) -> str:
    """SDKs read both ids from this path with a greedy pattern: it must end at the run's id."""
    return f"/threads/{run.thread_id}/runs/{run.run_id}"


def run_answer(run: RunRow, location: str) -> JsonResponse:
    """The run itself."""
    view: RunView = run_view(run)
    return JsonResponse(view, headers={"content-location": location})


def held(run: RunRow) -> RunRow:
    """The run without what its user sent and got: streams last long, and there are many of them."""
    small: dict[str, Any] = {name: run.payload[name] for name in ("stream_mode", "durability") if name in run.payload}
    return replace(run, payload=small, result=None)


def stream_answer(
    ctx: Context,
    run: RunRow,
    *,
    modes: Collection[str] = (),
    after: EventId | None = None,
    live: bool = False,
    cancel_if_left: bool,
    headers: Mapping[str, str],
) -> LiveResponse:
    """The run's events (`modes` empty: all it emits) after an id, or only those to come, until its end."""
    run = held(run)
    renderer = Renderer(Wanted.of(modes, run.payload.get("stream_mode") or ()))
    relay = Relay(ctx.db, ctx.runs, run, renderer, after=after, live=live, tally=ctx.tally)
    return LiveResponse(
        relay.pump,
        media_type=EVENT_STREAM,
        headers={**_UNCACHED, **headers},
        heartbeat=Heartbeat(HEARTBEAT, ctx.settings.heartbeat_seconds),
        stopping=ctx.stopping,
        gone=_cancel_when_left(ctx, run, cancel_if_left),
    )


def wait_answer(
    ctx: Context, run: RunRow, *, cancel_if_left: bool, headers: Mapping[str, str], empty: bool = False
) -> LiveResponse:
    """The run's outcome as JSON once it has finished, newlines until then; `{}` for a removed one, or if `empty`."""
    run = held(run)

    async def produce(sink: Sink) -> None:
        row = await finished_row(ctx.db, ctx.runs, run.run_id)
        await sink.write(to_json({} if row is None or empty else outcome(row)))

    return LiveResponse(
        produce,
        media_type="application/json",
        headers={**_UNCACHED, **headers},
        heartbeat=Heartbeat(b"\n", ctx.settings.heartbeat_seconds),
        stopping=ctx.stopping,
        gone=_cancel_when_left(ctx, run, cancel_if_left),
        whole=True,
    )


def missing_stream(ctx: Context, detail: str) -> LiveResponse:
    """The event stream of a run that doesn't exist: one error event. Clients only expect a status from the POST."""

    async def produce(sink: Sink) -> None:
        await sink.write(error_frame("NotFound", f"404: {detail}"))

    return LiveResponse(
        produce,
        media_type=EVENT_STREAM,
        headers=_UNCACHED,
        heartbeat=Heartbeat(HEARTBEAT, ctx.settings.heartbeat_seconds),
        stopping=ctx.stopping,
    )


def _cancel_when_left(ctx: Context, run: RunRow, wanted: bool) -> Callable[[], Awaitable[None]]:
    async def gone() -> None:
        if wanted:
            ctx.handover.cancel_soon(run)

    return gone
