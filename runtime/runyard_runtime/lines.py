"""The answer that is a stream of lines: sent as they come, ended when its reader goes away. Used by app.py.

Starlette's own does the same with a task group of anyio for each stream, which two tasks do without.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class LinesResponse(Response):
    """Sends what `lines` yields and closes it at the end, whoever ended the stream."""

    def __init__(self, lines: AsyncGenerator[bytes, None]) -> None:
        self.status_code, self.media_type, self.background = 200, "application/x-ndjson", None
        self.init_headers({"cache-control": "no-store"})
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            gone.cancel()
            await asyncio.wait({sending, gone})
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._lines) as lines:
            async for line in lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
