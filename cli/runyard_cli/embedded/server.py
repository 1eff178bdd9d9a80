"""uvicorn, run beside another one in the same loop: signals belong to `serve`, and readiness can be waited for."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

from runyard_cli.failure import CommandError

SHUTDOWN_SECONDS = 2
"""How long open responses (streams) get to end after a stop."""


class Server(uvicorn.Server):
    """A uvicorn that takes no signals and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def served(app: Any, *, uds: str | None = None, listener: socket.socket | None = None) -> AsyncIterator[None]:
    """Serves `app` on a unix socket or on a bound listener while the block runs. Raises what its start-up raises."""
    config = uvicorn.Config(
        app, uds=uds, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=SHUTDOWN_SECONDS
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve([listener] if listener else None))
    ready = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
            raise CommandError("The server ended while it started; the reason is above.")
        yield
    finally:
        ready.cancel()
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises CommandError when the port is taken or the address isn't this machine's."""
    try:
        return socket.create_server((host, port), family=_family(host), backlog=2048)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise CommandError(f"--host {host} is no address: {error.strerror}.") from error
        hint = "stop what uses it or choose another with --port (0 takes a free one)"
        raise CommandError(f"Port {port} on {host} can't be used ({_reason(error)}); {hint}.") from error


def quiet_uvicorn() -> None:
    """Keeps uvicorn's errors, but not the one that says that streams were cut when the person stopped the server."""
    logging.getLogger("uvicorn.error").addFilter(lambda record: "timeout graceful shutdown" not in str(record.msg))


def _family(host: str) -> socket.AddressFamily:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return socket.AddressFamily(found[0][0])


def _reason(error: OSError) -> str:
    """The system's words without create_server's addition."""
    return os.strerror(error.errno).lower() if error.errno else str(error)
