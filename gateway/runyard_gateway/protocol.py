"""HTTP/1.1 on one connection, as uvicorn does it, with bounds that it lacks: how large a request's head may be, how
long it may take to come, and how long an answer may stay unread. Used by __main__; what bodies may do is in body.py."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 128 * 1024
"""A URL and all headers. Tokens and cookies stay far below; nothing else belongs there."""

HEAD_SECONDS = 20.0
"""From the connection, or from the first byte of a later request, to the end of its head."""

UNREAD_SECONDS = 120.0
"""How long the buffers of a connection may stay full: its client holds the place of another one."""

_DETAIL = b'{"detail":"The URL and headers of the request are larger than 128 KiB"}'
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_DETAIL), _DETAIL)
)


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request's head is too large, with 431, or too slow in coming, and breaks one whose
    client doesn't read."""

    head_seconds, unread_seconds = HEAD_SECONDS, UNREAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes, self._began = 0, False
        self._head_due: asyncio.TimerHandle | None = None
        self._unread_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._read_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_due = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_on()
        super().resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes, self._began = 0, True
        if self._head_due is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._head_due is not None and self._head_bytes > MOST_HEAD_BYTES:
            self._refuse()
            return
        self._began = False
        super().data_received(data)
        # The piece in which a head began may hold other things; those after it, while it isn't whole, are all its own.
        if self._head_due is not None and not self._began:
            self._head_bytes += len(data)

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _await_head(self) -> None:
        self._head_due = self.loop.call_later(self.head_seconds, self._too_late)

    def _too_late(self) -> None:
        self._head_due = None
        self.transport.close()

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _read_on(self) -> None:
        if self._unread_due is not None:
            self._unread_due.cancel()
            self._unread_due = None
