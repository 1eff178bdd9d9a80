"""From event envelopes to Server-Sent Events. Pure: the relay feeds it, and it alone knows the wire's words.

The data of an event goes through as the bytes it came in; only the legacy `messages` trio (messages.py) reads it.
"""

from collections.abc import Collection
from dataclasses import dataclass

import orjson

from runyard_api.events import END, ERROR, GAP, METADATA, Event
from runyard_gateway.messages import LegacyMessages

HEARTBEAT = b": heartbeat\r\n\r\n"
OWN = frozenset({METADATA, ERROR, END, GAP})
"""Modes that every reader gets, whatever modes it asked for."""
_MESSAGES = frozenset({"messages", "messages-tuple"})


def frame(event: str, data: bytes, event_id: str | None = None) -> bytes:
    """One SSE frame: event, data, id, in this order, CRLF line ends. `data` is one JSON document on one line."""
    tail = b"\r\nid: " + event_id.encode() if event_id else b""
    return b"event: " + event.encode() + b"\r\ndata: " + data + tail + b"\r\n\r\n"


def error_frame(error: str, message: str) -> bytes:
    return frame(ERROR, orjson.dumps({"error": error, "message": message}))


def metadata_frame(run_id: str, attempt: int) -> bytes:
    return frame(METADATA, orjson.dumps({"run_id": run_id, "attempt": attempt}))


def end_frame() -> bytes:
    return frame(END, b"null")


@dataclass(frozen=True)
class Wanted:
    """The modes a reader asked for. `modes` empty means all that the run emits; `legacy`: messages as the trio."""

    modes: frozenset[str]
    legacy: bool

    @classmethod
    def of(cls, asked: Collection[str], run_modes: Collection[str]) -> "Wanted":
        """`asked` empty: what the run was created with. The tuple form of messages wins where both are asked for."""
        modes = frozenset(asked or run_modes)
        return cls(modes=frozenset(asked), legacy="messages" in modes and "messages-tuple" not in modes)

    def includes(self, mode: str) -> bool:
        """`messages` and `messages-tuple` match each other; Runyard's own modes match always."""
        if not self.modes or mode in OWN or mode in self.modes:
            return True
        return mode in _MESSAGES and not _MESSAGES.isdisjoint(self.modes)


class Renderer:
    """The frames of one reader's stream. Keeps state for the legacy messages only."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._messages = LegacyMessages() if wanted.legacy else None

    @property
    def needs_history(self) -> bool:
        """Whether frames depend on earlier events, so that a reader who resumes must be fed from the start."""
        return self._messages is not None

    def render(self, event: Event) -> bytes:
        """The event's frames, empty when the reader didn't ask for its mode."""
        if not self._wanted.includes(event.mode):
            return b""
        if self._messages is not None and event.mode in _MESSAGES:
            return self._trio(self._messages, event)
        name = "messages" if event.mode == "messages-tuple" else event.mode
        if event.ns and event.mode not in OWN:
            name = "|".join((name, *event.ns))
        return frame(name, event.data, str(event.id))

    def _trio(self, messages: LegacyMessages, event: Event) -> bytes:
        """Several frames of one event: the last alone carries the id, so that a resume never cuts them apart."""
        parts = messages.add(event.data)
        if not parts:
            return b""
        *earlier, (name, data) = parts
        return b"".join(frame(n, d) for n, d in earlier) + frame(name, data, str(event.id))
