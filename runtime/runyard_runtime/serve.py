"""Serving an ASGI app with uvicorn on TCP or a unix socket, inside a loop that others use too and own the signals of.

Used by `__main__` and by the embedded mode.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

_KEEP_ALIVE_SECONDS = 75  # longer than any client of ours keeps a connection: a closing race would fail its request
_PATIENCE_SECONDS = 2


class Server(uvicorn.Server):
    """A server that leaves signals to the process."""

    _serving: "asyncio.Task[None]"
    _listening: asyncio.Event

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def stop(self) -> None:
        """Stops listening and ends what is under way within a few seconds."""
        self.should_exit = True
        await asyncio.wait({self._serving})

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()

    async def begin(self, listener: socket.socket) -> None:
        """Starts to serve; returns once it listens, or raises what kept it from that."""
        self._listening = asyncio.Event()
        self._serving = asyncio.create_task(self.serve(sockets=[listener]), name="http server")
        listening = asyncio.create_task(self._listening.wait())
        await asyncio.wait({self._serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            listening.cancel()
            self._serving.result()


async def serve(app: ASGIApp, *, port: int | None = None, uds: Path | None = None, host: str = "0.0.0.0") -> Server:
    """Serves the app until `stop`; give a TCP port or the path of a unix socket (mode 0600; one there is replaced).

    Returns once it accepts connections. Raises OSError when the address is taken.
    """
    listener = _unix_socket(uds) if uds is not None else _tcp_socket(host, port or 0)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="none",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_PATIENCE_SECONDS,
        backlog=2048,
    )
    server = Server(config)
    await server.begin(listener)
    return server


def _tcp_socket(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    return listener


def _unix_socket(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener
