"""What the console shows, as text and as JSON lines."""

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from runyard_api.internal import RunError
from runyard_api.states import RunState, Strategy
from runyard_cli.embedded.board import Entry
from runyard_cli.embedded.report import JsonLines, Lines, Quietly, Started

RUN = Entry(
    "01a22f74-a060-7dac-811b-ac11e18bb215",
    "3eba673c-8768-40b1-81c8-04b288b3c1f1",
    "hello",
    1,
    Strategy.ENQUEUE,
    attempt=1,
    state=RunState.RUNNING,
)
FAILED = replace(RUN, state=RunState.ERROR, error=RunError(error="E", message="no"))
STARTED = Started(
    "1.0", "http://127.0.0.1:1", {"hello": "./g.py:graph"}, Path("langgraph.json"), Path("/s"), 2, 1.5, Path("/s/token")
)


def text_report() -> tuple[Lines, io.StringIO]:
    out = io.StringIO()
    return Lines(Console(file=out, width=200)), out


def test_the_first_line_comes_before_the_graphs_are_imported() -> None:
    report, out = text_report()
    report.starting("1.0", Path("langgraph.json"), {"hello": "./g.py:graph", "other": "./o.py:graph"})
    assert out.getvalue() == "Runyard 1.0  langgraph.json\nImporting hello, other …\n"


def test_quietly_says_only_what_went_wrong() -> None:
    inner, out = text_report()
    report = Quietly(inner)
    report.request("GET", "/", 200, 0.1)
    report.run_started(RUN)
    report.run_ended(replace(RUN, state=RunState.SUCCESS), 1)
    assert out.getvalue() == ""
    report.run_ended(FAILED, 1)
    assert "E: no" in out.getvalue()


def test_the_start_names_graphs_api_docs_and_the_runs_that_go_on() -> None:
    report, out = text_report()
    report.started(STARTED)
    for word in (
        "hello",
        "./g.py:graph",
        "http://127.0.0.1:1/docs",
        "/s",
        "2 unfinished",
        "Ready in 1.5 s",
        "/s/token",
    ):
        assert word in out.getvalue()


def test_a_run_is_one_line_at_its_start_and_one_at_its_end() -> None:
    report, out = text_report()
    report.run_started(RUN)
    report.run_ended(FAILED, 1.25)
    started, ended = out.getvalue().splitlines()
    assert started.endswith("run    hello started  run e18bb215 thread 88b3c1f1")
    assert ended.endswith("run    hello error after 1.2 s: E: no  run e18bb215 thread 88b3c1f1")


def test_what_comes_from_outside_stays_one_line_without_control_sequences() -> None:
    report, out = text_report()
    report.request("GET", "/a\nb\x1b[31mc\x00", 404, 0)
    report.run_ended(replace(FAILED, error=RunError(error="E", message="one\ntwo\r\x1b]0;x")), None)
    requested, ended = out.getvalue().splitlines()
    assert "GET    /a b\N{REPLACEMENT CHARACTER}[31mc\N{REPLACEMENT CHARACTER} 404" in requested
    assert "E: one two \N{REPLACEMENT CHARACTER}]0;x" in ended


def test_markup_in_a_message_is_text() -> None:
    report, out = text_report()
    report.request("GET", "/[bold]x[/bold]", 404, 0.01)
    assert "GET    /[bold]x[/bold] 404  10 ms" in out.getvalue()


def test_json_lines_are_one_object_each() -> None:
    out = io.StringIO()
    report = JsonLines(Console(file=out))
    report.started(STARTED)
    report.request("GET", "/ok", 200, 0.01)
    report.run_started(RUN)
    report.run_ended(FAILED, None)
    report.stopping()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["started", "request", "run_started", "run_ended", "stopping"]
    assert lines[0]["url"] == "http://127.0.0.1:1"
    assert lines[3]["error"] == {"error": "E", "message": "no"}
