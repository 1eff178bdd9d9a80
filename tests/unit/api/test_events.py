"""Event ids and the one line form of an event."""

import pytest

from runyard_api.events import Event, EventId, events_from_lines, first_base, resume_point


def test_an_id_prints_and_parses_to_itself() -> None:
    assert EventId.parse(str(EventId.of(1700000000000, 2, 7))) == EventId(1700000000000, 2_000_000_007)
    assert EventId.parse("17-2000000007").attempt == 2


def test_ids_of_a_later_attempt_and_of_a_later_run_sort_after() -> None:
    ids = [EventId.of(5, 1, 0), EventId.of(5, 1, 999), EventId.of(5, 2, 0), EventId.of(6, 1, 0)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("text", ["", "x", "1-2-3", "1-", "-5", "1_000", "9" * 30, "1-2\r\nevent: end"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        EventId.parse(text)


@pytest.mark.parametrize(("now", "last", "want"), [(100, 0, 100), (100, 99, 100), (100, 100, 101), (100, 250, 251)])
def test_a_base_rises_on_a_thread_even_when_the_clock_goes_back(now: int, last: int, want: int) -> None:
    assert first_base(now, last) == want


@pytest.mark.parametrize(
    ("header", "want"),
    [
        (None, None),
        ("-1", EventId(0, 0)),
        ("-", EventId(0, 0)),
        ("", EventId(0, 0)),
        ("7-3", EventId(7, 3)),
        ("7", EventId(7, 0)),
    ],
)
def test_where_a_reader_resumes(header: str | None, want: EventId | None) -> None:
    assert resume_point(header) == want


def test_lines_survive_tabs_newlines_and_any_text_in_data_and_namespace() -> None:
    events = [
        Event(EventId(1, 1), "values", (), b'{"a":"tab\\t newline\\n \\u2028"}'),
        Event(EventId(1, 2), "custom", ('odd "node"\t\n:1', "b:2"), b"null"),
        Event(EventId(1, 3), "messages", (), '["line\u2028separator\u0085"]'.encode()),
    ]
    assert list(events_from_lines(b"".join(e.line() for e in events))) == events


@pytest.mark.parametrize("line", [b"", b"no tab", b'["1-1","values"]\t{}', b'{"a":1}\t{}'])
def test_a_broken_line_raises_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Event.from_line(line)
