"""Which Host headers the embedded server answers: no web page may reach a laptop's server by DNS rebinding.

Called by `process`; wraps the gateway's application.
"""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard_api.errors import RunyardError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


class WrongHost(RunyardError):
    status, reason = 403, "WrongHost"


class LoopbackHostsOnly:
    """Refuses requests whose Host isn't a name of this machine's loopback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_loopback(host := Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        error = WrongHost(f"Host {host[:100]!r} is not served; use localhost or 127.0.0.1, or start with --host.")
        await JSONResponse({"detail": error.detail}, status_code=error.status)(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Whether a Host header, with or without a port, names the loopback."""
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or not port.isdigit():
        name = host.strip().lower()
    return name.rstrip(".") in LOOPBACK
