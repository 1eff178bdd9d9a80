"""What parts and libraries log reaches the console as lines to read, or as JSON."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from rich.console import Console

from runyard_cli.embedded.console_logs import report_logs
from runyard_cli.embedded.report import JsonLines, Lines, Report


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(out: io.StringIO, *, verbose: bool = False) -> Report:
    return Lines(Console(file=out, width=200, highlight=False), verbose=verbose)


def test_a_warning_is_one_readable_line() -> None:
    out = io.StringIO()
    report_logs(lines(out), "normal")
    structlog.get_logger().warning("langgraph.json has a key without effect here", key="auth", none=None)
    assert out.getvalue()[8:] == "  warning langgraph.json has a key without effect here  key=auth\n"


def test_libraries_are_told_from_warning_up_and_in_detail_when_asked() -> None:
    out = io.StringIO()
    report_logs(lines(out), "normal")
    logging.getLogger("uvicorn.error").info("quiet")
    logging.getLogger("uvicorn.error").warning("port %d", 80)
    structlog.get_logger().info("quiet")
    assert out.getvalue()[8:] == "  warning port 80  logger=uvicorn.error\n"
    report_logs(lines(out), "verbose")
    structlog.get_logger().debug("thread waits", thread="t")
    assert out.getvalue().endswith("debug  thread waits  thread=t\n")


def fail() -> None:
    json.loads("{")


def test_an_error_shows_the_lines_of_the_project_alone_unless_all_are_wanted() -> None:
    for verbose, there in ((False, False), (True, True)):
        out = io.StringIO()
        report_logs(lines(out, verbose=verbose), "normal")
        try:
            fail()
        except ValueError:
            structlog.get_logger().exception("run failed", run="r")
        assert "error  run failed  run=r\n          Traceback (most recent call last):\n" in out.getvalue()
        assert "in fail\n              json.loads" in out.getvalue()
        assert ("json/decoder.py" in out.getvalue()) is there
        assert "JSONDecodeError: Expecting property name" in out.getvalue()


def test_json_has_one_object_for_each_line_with_the_whole_traceback() -> None:
    out = io.StringIO()
    report_logs(JsonLines(Console(file=out)), "normal")
    structlog.get_logger().warning("odd", run="r", count=3, event_=object)
    try:
        fail()
    except ValueError:
        logging.getLogger("a.library").exception("broke")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["event"], first["level"], first["message"], first["run"], first["count"]) == (
        "log",
        "warning",
        "odd",
        "r",
        3,
    )
    assert (second["event"], second["level"], second["message"], second["logger"]) == (
        "log",
        "error",
        "broke",
        "a.library",
    )
    assert "json/decoder.py" in second["exception"]
