"""An httpx transport with a plain connection pool, for many streams to few hosts at once.

httpx's own pool looks at every connection, sockets included, for each request and each response: at a hundred open
streams that costs more than the requests. This one takes the newest idle connection or makes one; nothing is counted or
queued, so the caller bounds how much it does at once. Used by `runtime.pooled_http` and `runtime.socket_http`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import httpcore
import httpx

_MOST_IDLE = 200
_IDLE_SECONDS = 30.0
_Key = tuple[bytes, bytes, int | None]


class PoolingTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 without TLS, over TCP or the unix socket `uds`. Raises what httpx's own transport raises."""

    def __init__(self, uds: str | None = None) -> None:
        self._uds = uds
        self._idle: dict[_Key, list[httpcore.AsyncHTTPConnection]] = {}
        self._open: set[httpcore.AsyncHTTPConnection] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        key = (url.raw_scheme, url.raw_host, url.port)
        connection = await self._connection(key, target)
        outgoing = httpcore.Request(
            request.method,
            target,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            with _httpx_errors():
                incoming = await connection.handle_async_request(outgoing)
        except BaseException:
            await self._drop(connection)
            raise
        stream = _Body(incoming, lambda: self._give_back(key, connection))
        return httpx.Response(incoming.status, headers=incoming.headers, stream=stream, extensions=incoming.extensions)

    async def aclose(self) -> None:
        """Closes every connection, those in use too."""
        for connection in list(self._open):
            await self._drop(connection)
        self._idle.clear()

    async def _connection(self, key: _Key, target: httpcore.URL) -> httpcore.AsyncHTTPConnection:
        idle = self._idle.get(key, [])
        while idle:
            connection = idle.pop()
            if connection.is_available() and not connection.has_expired():
                return connection
            await self._drop(connection)
        made = httpcore.AsyncHTTPConnection(target.origin, keepalive_expiry=_IDLE_SECONDS, uds=self._uds)
        self._open.add(made)
        return made

    async def _give_back(self, key: _Key, connection: httpcore.AsyncHTTPConnection) -> None:
        idle = self._idle.setdefault(key, [])
        if connection.is_idle() and not connection.is_closed() and len(idle) < _MOST_IDLE:
            idle.append(connection)
            await self._weed(idle)
        else:
            await self._drop(connection)

    async def _weed(self, idle: list[httpcore.AsyncHTTPConnection]) -> None:
        """Closes the oldest idle one, at the front, when it has expired; only the newest are ever taken."""
        if len(idle) > 1 and idle[0].has_expired():
            await self._drop(idle.pop(0))

    async def _drop(self, connection: httpcore.AsyncHTTPConnection) -> None:
        self._open.discard(connection)
        await connection.aclose()


class _Body(httpx.AsyncByteStream):
    """A response's body; closing it gives its connection back."""

    def __init__(self, incoming: httpcore.Response, done: Callable[[], Awaitable[None]]) -> None:
        self._incoming, self._done = incoming, done

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors():
            async for part in self._incoming.aiter_stream():
                yield part

    async def aclose(self) -> None:
        try:
            with _httpx_errors():
                await self._incoming.aclose()
        finally:
            await self._done()


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """httpcore's errors by httpx's names, which are the same."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise getattr(httpx, type(error).__name__, httpx.TransportError)(str(error)) from error
