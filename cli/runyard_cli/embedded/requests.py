"""One report line per request, when its response begins; wraps the gateway's application. Called by `process`."""

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runyard_cli.embedded.report import Report

QUIET = frozenset({"/ok", "/"})
"""Probes: they come every few seconds and tell nobody anything."""


class ReportRequests:
    """Passes everything on unchanged; probes that succeed aren't reported."""

    def __init__(self, app: ASGIApp, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._report, self._clock = app, report, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock()

        async def reported(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                if scope["path"] not in QUIET or status >= 400:
                    self._report.request(scope["method"], scope["path"], status, self._clock() - began)
            await send(message)

        await self._app(scope, receive, reported)
