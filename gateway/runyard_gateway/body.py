"""Reading request bodies within bounds, of one body and of all together, and writing JSON answers.

Called by every route through StrictRoute; calls json_input.py.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import orjson
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from runyard_gateway.json_input import parse_json

STALLED_SECONDS = 30.0
"""How long a client may pause in the middle of its body."""

BODY_SECONDS = 120.0
"""How long a whole body may take: a client that sends a byte now and then holds room that others wait for."""

ROOM_SECONDS = 30.0
"""How long a large body may wait for room before its client is asked to come back."""

SMALL_BYTES = 64 * 1024
"""Bodies up to this need no room: their number is bounded by that of requests."""


class BodyLimits:
    """What the bodies of all requests may hold together. A body is several times its size while it is taken apart and
    stored, so there is room for one of the largest at a time, or for many smaller ones; the others wait unread."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._free = max_bytes
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def room(self) -> AsyncIterator["Room"]:
        """Room for one request's body, given back at the end."""
        room = Room(self)
        try:
            yield room
        finally:
            if room.held:
                await self._give_back(room.held)

    async def _take(self, size: int, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._free >= size)
                self._free -= size
        except TimeoutError:
            detail = "The server is busy with other large requests; try again."
            raise HTTPException(503, detail, {"Retry-After": "1"}) from None

    async def _give_back(self, size: int) -> None:
        async with self._changed:
            self._free += size
            self._changed.notify_all()


class Room:
    """The part of it that one request holds."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits, self.held = limits, 0

    async def ensure(self, announced: int | None, read: int, seconds: float = ROOM_SECONDS) -> None:
        """Makes sure that there is room before more is read. A body of unknown length may become one of the largest.

        Raises HTTPException: 413 for a body that is larger than allowed, 503 when no room gets free in time.
        """
        if max(announced or 0, read) > self.limits.max_bytes:
            raise HTTPException(413, f"Request body is larger than {_readable(self.limits.max_bytes)}")
        size = self.limits.max_bytes if announced is None else announced
        if not self.held and max(announced or 0, read) > SMALL_BYTES:
            await self.limits._take(size, seconds)
            self.held = size


class StrictRequest(Request):
    """A request whose JSON is read by parse_json and whose body is bounded, in size, in pauses and in all its time."""

    stalled_seconds, body_seconds = STALLED_SECONDS, BODY_SECONDS

    def __init__(self, scope: Scope, receive: Receive, send: Send, room: Room) -> None:
        super().__init__(scope, receive, send)
        self._room = room

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self._read()
        return self._body

    async def _read(self) -> bytes:
        announced = self._announced()
        await self._room.ensure(announced, 0)
        chunks: list[bytes] = []
        loop, size, parts = asyncio.get_running_loop(), 0, self.stream()
        end = loop.time() + self.body_seconds
        while True:
            try:
                async with asyncio.timeout_at(min(end, loop.time() + self.stalled_seconds)):
                    chunk = await anext(parts, None)
            except TimeoutError:
                raise HTTPException(408, self._too_slow(loop.time() >= end)) from None
            if chunk is None:
                return b"".join(chunks)
            size += len(chunk)
            await self._room.ensure(announced, size)
            chunks.append(chunk)

    def _announced(self) -> int | None:
        """What Content-Length says; None for a body in chunks."""
        text = self.headers.get("content-length")
        if text is None:
            return None if "transfer-encoding" in self.headers else 0
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise HTTPException(400, "Content-Length: must be a number of bytes")
        return int(text)

    def _too_slow(self, whole: bool) -> str:
        if whole:
            return f"Request body: took longer than {self.body_seconds:g} s"
        return f"Request body: nothing came for {self.stalled_seconds:g} s"

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A route of a StrictRequest. Every body is JSON, whatever its content type says: curl -d sends a form's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if "\x00" in request.url.path or b"%00" in request.scope["query_string"]:
                raise HTTPException(422, "URL: must not contain NUL characters (%00)")
            limits: BodyLimits = request.app.state.bodies
            async with limits.room() as room:
                return await handle(StrictRequest(_as_json(request.scope), request.receive, request._send, room))

        return strict


def _as_json(scope: Scope) -> Scope:
    if (b"content-type", b"application/json") in scope["headers"]:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}


def _readable(size: int) -> str:
    return f"{size // 2**20} MiB" if size % 2**20 == 0 else f"{size} bytes"


def to_json(value: Any) -> bytes:
    """JSON bytes; datetimes as RFC 3339 in UTC with microseconds."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


class JsonResponse(Response):
    """A response whose content is any JSON value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)
