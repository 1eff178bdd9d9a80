"""The gateway's TCP server in the loop of `process`, and its listening socket.

Called by `process`.
"""

import contextlib
import os
import socket
from collections.abc import AsyncIterator

import uvicorn
from starlette.types import ASGIApp

from runyard_cli.failure import CommandError
from runyard_runtime.serve import Server

STREAMS_SECONDS = 2
"""How long open responses get to end after a stop."""


@contextlib.asynccontextmanager
async def served(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serves `app` with its lifespan on a bound listener while the block runs."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=STREAMS_SECONDS
    )
    server = Server(config)
    await server.begin(listener)
    try:
        yield
    finally:
        await server.stop()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises CommandError when the port is taken or the address isn't this machine's."""
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except socket.gaierror as error:
        raise CommandError(f"--host {host} is no address: {error.strerror}.") from error
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        hint = "stop what uses it or choose another with --port (0 takes a free one)"
        raise CommandError(f"Port {port} on {host} can't be used ({reason}); {hint}.") from error
