"""Connections to a pod: that a stream read to its last event leaves one for the next request."""

import asyncio

from runyard_api.events import END, Event, EventId
from runyard_clients.runtime import RuntimeClient, pooled_http


async def test_the_connection_of_a_stream_that_ended_serves_the_next_one() -> None:
    line = Event(EventId(1, 1), END, (), b"null").line()
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line))
                await writer.drain()
                await asyncio.sleep(0)  # the end comes apart from the last event, as a server sends it
                writer.write(b"0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, pooled_http() as http:
        client = RuntimeClient(f"http://127.0.0.1:{port}", token=None, http=http)
        for _ in range(3):
            stream = client.event_batches("run")
            assert (await anext(stream))[-1].mode == END
            await stream.aclose()
        assert connections == 1
