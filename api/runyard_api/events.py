"""The event envelope of a run and its one wire form, used from the graph to the log and to the gateway.

An envelope is neutral: what LangGraph emitted, named by mode and namespace. Renderers at the gateway make SSE from it;
SSE text is never stored. One envelope is one line: a JSON header `["<id>","<mode>",["<ns>",…]]`, a tab, the data as
JSON, a newline. JSON escapes tabs and newlines, so a line is split without parsing the data.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import orjson

SEQUENCES_PER_ATTEMPT = 1_000_000_000
_ID = re.compile(r"(\d{1,15})(?:-(\d{1,19}))?")
METADATA, ERROR, END, GAP = "metadata", "error", "end", "gap"
"""Modes that Runyard adds to LangGraph's own: how a run begins, fails, ends, and that events were dropped."""


@dataclass(frozen=True, order=True)
class EventId:
    """`<base>-<seq>`: base in ms, fixed at the run's first claim; seq = attempt · 10⁹ + n. Ids of a thread rise."""

    base: int
    seq: int

    @classmethod
    def of(cls, base: int, attempt: int, n: int) -> Self:
        return cls(base, attempt * SEQUENCES_PER_ATTEMPT + n)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `<base>` or `<base>-<seq>`. Raises ValueError naming the form."""
        match = _ID.fullmatch(text.strip())
        if not match:
            raise ValueError(f"event id {text[:40]!r} is not of the form <milliseconds>-<sequence>")
        return cls(int(match[1]), int(match[2] or 0))

    @property
    def attempt(self) -> int:
        return self.seq // SEQUENCES_PER_ATTEMPT

    def __str__(self) -> str:
        return f"{self.base}-{self.seq}"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run. `data` is a JSON document as bytes; `ns` is () at the root graph."""

    id: EventId
    mode: str
    ns: tuple[str, ...]
    data: bytes

    def line(self) -> bytes:
        return orjson.dumps([str(self.id), self.mode, self.ns]) + b"\t" + self.data + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Reads one line with or without its newline. Raises ValueError on anything else."""
        header, tab, data = line.rstrip(b"\n").partition(b"\t")
        if not tab:
            raise ValueError("an event line has no tab between header and data")
        event_id, mode, ns = orjson.loads(header)
        return cls(EventId.parse(event_id), mode, tuple(ns), data)


def events_from_lines(lines: bytes) -> Iterator[Event]:
    """Reads the concatenated lines of a log batch, in order."""
    for line in lines.splitlines():
        yield Event.from_line(line)


def first_base(now_ms: int, last_base: int) -> int:
    """The id base of a run claimed now; `last_base` is that of its thread's newest run (0: none)."""
    return max(now_ms, last_base + 1)


def resume_point(header: str | None) -> EventId | None:
    """Where a reader that sent this Last-Event-ID goes on, exclusive: `-1`, `-` mean the start; None means live only.

    Raises ValueError for any other text that isn't an event id.
    """
    if header is None:
        return None
    if header.strip() in ("-1", "-", ""):
        return EventId(0, 0)
    return EventId.parse(header)
