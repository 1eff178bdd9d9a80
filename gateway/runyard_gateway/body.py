"""Reading JSON bodies strictly and writing JSON answers: what can't be stored or sent again is refused at the door.

Called by every route through StrictRoute; calls nothing but orjson.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from json import JSONDecodeError
from typing import Any

import orjson
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Scope

MAX_DEPTH = 128
"""Levels of lists and objects in a body. Below the limits of every writer of JSON on the way to the graph."""
MAX_BODY_BYTES = 64 * 1024 * 1024
STALLED_SECONDS = 30.0
"""How long a client may pause in the middle of its body."""
BAD_JSON = "Invalid JSON in request body"


def parse_json(raw: bytes) -> Any:
    """The document. Raises HTTPException 422 for what is no JSON (NaN and lone surrogates included), nested more than
    MAX_DEPTH levels deep, or holds a NUL character, which Postgres can't store."""
    try:
        document = orjson.loads(raw)
    except JSONDecodeError as error:
        raise HTTPException(422, BAD_JSON) from error
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(document) > MAX_DEPTH:
        raise HTTPException(422, f"{BAD_JSON}: more than {MAX_DEPTH} levels deep")
    if b"\\u0000" in raw and any("\x00" in text for text in _texts(document)):
        raise HTTPException(422, "Request body: text must not contain NUL characters (\\u0000)")
    return document


def _depth(document: Any) -> int:
    level, depth = [document], 0
    while level := [child for node in level for child in _children(node)]:
        depth += 1
        if depth > MAX_DEPTH:
            break
    return depth + 1


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _texts(document: Any) -> Iterator[str]:
    pending = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            yield from node
        pending.extend(_children(node))


class StrictRequest(Request):
    """A request whose JSON is read by parse_json and whose body is bounded, in size and in pauses."""

    stalled_seconds = STALLED_SECONDS

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self._read()
        return self._body

    async def _read(self) -> bytes:
        _refuse_larger(int(self.headers.get("content-length", 0)))
        chunks: list[bytes] = []
        size, parts = 0, self.stream()
        while True:
            try:
                async with asyncio.timeout(self.stalled_seconds):
                    chunk = await anext(parts, None)
            except TimeoutError:
                raise HTTPException(408, f"Request body: nothing came for {self.stalled_seconds:g} s") from None
            if chunk is None:
                return b"".join(chunks)
            size += len(chunk)
            _refuse_larger(size)
            chunks.append(chunk)

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


def _refuse_larger(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"Request body is larger than {MAX_BODY_BYTES // 2**20} MiB")


class StrictRoute(APIRoute):
    """A route of a StrictRequest. Every body is JSON, whatever its content type says: curl -d sends a form's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if "\x00" in request.url.path or b"%00" in request.scope["query_string"]:
                raise HTTPException(422, "URL: must not contain NUL characters (%00)")
            return await handle(StrictRequest(_as_json(request.scope), request.receive, request._send))

        return strict


def _as_json(scope: Scope) -> Scope:
    if (b"content-type", b"application/json") in scope["headers"]:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}


def to_json(value: Any) -> bytes:
    """JSON bytes; datetimes as RFC 3339 in UTC with microseconds."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


class JsonResponse(Response):
    """A response whose content is any JSON value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)
