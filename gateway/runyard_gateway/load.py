"""How much the gateway takes on at once: requests at work and open streams. Beyond that it answers 503 with Retry-After
before anything is read or committed. Plain ASGI, installed by app.py in front of authentication; counted in metrics.py.
"""

from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runyard_api.errors import Unavailable
from runyard_gateway.failures import failure_of
from runyard_gateway.open_paths import OPEN_PATHS

LIVE = ("/stream", "/wait", "/join")
"""Ends of the paths whose answers may last as long as a run."""

_NO = frozenset({"0", "f", "false", "n", "no", "off"})

_BUSY = "The server is at work on as many requests as it takes at once; try again."
_FULL = "The server holds as many streams as it takes at once; try again."


@dataclass
class Load:
    """The present load. `working`: requests until their answer has been sent, or has begun if it is a stream."""

    max_requests: int
    max_streams: int
    working: int = 0
    streams: int = 0
    refused: int = 0

    @property
    def overloaded(self) -> bool:
        """Whether another request would be refused."""
        return self.working >= self.max_requests


def is_live(path: str, query: bytes) -> bool:
    """Whether the answer may last as long as a run. A cancel that doesn't wait isn't one: it has to be possible while
    all streams are taken, because it ends some."""
    if path.endswith("/cancel"):
        wait = parse_qs(query.decode("latin-1")).get("wait", ["0"])[-1]
        return wait.lower() not in _NO
    return path.endswith(LIVE)


class Admission:
    """Lets in what there is room for. Probes always: they tell of the load."""

    def __init__(self, app: ASGIApp, *, load: Load) -> None:
        self._app, self._load = app, load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        load, live = self._load, is_live(scope["path"], scope["query_string"])
        if load.overloaded or (live and load.streams >= load.max_streams):
            load.refused += 1
            await failure_of(Unavailable(_BUSY if load.overloaded else _FULL))(scope, receive, send)
            return
        load.working += 1
        if live:
            await self._live(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            load.working -= 1

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        load, working = self._load, True
        load.streams += 1

        async def send_begun(message: Message) -> None:
            nonlocal working
            if working:  # the answer begins: from now on this is a stream, or a short refusal
                working = False
                load.working -= 1
            await send(message)

        try:
            await self._app(scope, receive, send_begun)
        finally:
            load.streams -= 1
            if working:
                load.working -= 1
