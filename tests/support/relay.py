"""A TCP relay in front of a server, to cut its connections and to make it unreachable for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Passes bytes both ways. TLS goes through untouched, so the server's certificate must hold for 127.0.0.1."""

    def __init__(self, port: int) -> None:
        """`port`: of the server, on 127.0.0.1."""
        self._target = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = asyncio.Event()
        self.port = 0
        self.silent = False
        """Whether bytes are swallowed rather than passed on, in connections taken from now on."""

    async def up(self) -> None:
        """Listens, from the second time on at the same port."""
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuses new connections and cuts the present ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.gather(*self._tasks)

    async def next_connection(self) -> None:
        """Waits until a connection is taken, from now on."""
        self._taken.clear()
        await self._taken.wait()

    def cut(self) -> None:
        """Breaks every present connection, both ways, without a goodbye."""
        for writer in tuple(self._open):
            writer.transport.abort()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._taken.set()
        self._open.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass(reader, writer)
        finally:
            self._open.discard(writer)
            await _closed(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.silent:
            with suppress(OSError):
                await reader.read()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            return
        self._open.add(far_writer)
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._open.discard(far_writer)
            await _closed(far_writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    """A relay that is up, and down at the end."""
    relay = Relay(port)
    await relay.up()
    try:
        yield relay
    finally:
        await relay.down()
