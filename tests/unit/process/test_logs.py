"""Log lines: their form, what is bound to them, and that the text of exceptions stays out."""

import io
import json
import logging
import sys
import threading

import pytest
import structlog

from runyard_api.errors import Unavailable
from runyard_process.environment import BadSetting, Environment
from runyard_process.logs import LogSettings, configure_logs, log_settings

SECRET = "the words of a user"


def started(**settings: object) -> io.StringIO:
    out = io.StringIO()
    configure_logs(LogSettings(**settings), out)  # type: ignore[arg-type]
    return out


def fails() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        raise RuntimeError(f"because of {SECRET}") from error


def test_a_line_of_ours_is_logfmt_and_names_the_run_first() -> None:
    out = started()
    with structlog.contextvars.bound_contextvars(run="r1", thread="t1", attempt=2):
        structlog.get_logger().info("run ended", state="success", words='a "b"\nc', ok=True, none=None)
    time, rest = out.getvalue().split(" ", 1)
    assert time.startswith("timestamp=20")
    assert time.endswith("Z")
    assert rest == (
        r'level=info event="run ended" run=r1 thread=t1 attempt=2 state=success words="a \"b\"\nc" ok=true'
        "\n"
    )


def test_json_has_one_object_for_each_line() -> None:
    out = started(form="json")
    structlog.get_logger().warning("odd", run="r1", count=3)
    logging.getLogger("uvicorn.error").warning("port %d", 80)
    ours, theirs = map(json.loads, out.getvalue().splitlines())
    assert (ours["level"], ours["event"], ours["run"], ours["count"]) == ("warning", "odd", "r1", 3)
    assert (theirs["level"], theirs["event"], theirs["logger"]) == ("warning", "port 80", "uvicorn.error")
    assert ours.keys() & theirs.keys() >= {"timestamp", "level", "event"}


def test_control_characters_are_told_not_written() -> None:
    out = started()
    structlog.get_logger().info("request", path="/a\x1b[31m\r\u2028\nb")
    assert out.getvalue().endswith("path=/a\\x1b[31m\\r\\u2028\\nb\n")


def test_below_the_level_nothing_is_written_and_libraries_begin_at_warning() -> None:
    out = started(level=logging.DEBUG)
    logging.getLogger("a.library").info(SECRET)
    structlog.get_logger().debug("seen")
    assert [SECRET in out.getvalue(), "event=seen" in out.getvalue()] == [False, True]
    out = started(level=logging.WARNING)
    structlog.get_logger().info("unseen")
    assert out.getvalue() == ""


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_an_exception_is_told_by_class_and_lines_alone(form: str) -> None:
    out = started(form=form)
    for log in (structlog.get_logger(), logging.getLogger("kopf.objects")):
        try:
            fails()
        except RuntimeError:
            log.exception("it broke")
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert SECRET not in line
        assert "in fails" in line
        assert line.index("ValueError") < line.index("RuntimeError")


def test_what_our_errors_and_the_systems_say_is_kept() -> None:
    out = started()
    for error in (Unavailable("the database doesn't answer"), FileNotFoundError(2, "No such file")):
        structlog.get_logger().error("it broke", exc_info=error)
    assert "Unavailable: the database doesn't answer" in out.getvalue()
    assert "FileNotFoundError: No such file" in out.getvalue()


def test_a_group_of_exceptions_is_told_with_its_parts() -> None:
    out = started()
    structlog.get_logger().error("it broke", exc_info=ExceptionGroup(SECRET, [KeyError(SECRET), OSError(5, "I/O")]))
    assert SECRET not in out.getvalue()
    assert r"ExceptionGroup\nKeyError\nOSError: I/O" in out.getvalue()


def test_asyncio_does_not_tell_the_repr_of_a_failed_task() -> None:
    out = started()
    logging.getLogger("asyncio").error(f"Task exception was never retrieved\nfuture: <Task exception=E({SECRET!r})>")
    assert SECRET not in out.getvalue()
    assert "Task exception was never retrieved" in out.getvalue()


def test_errors_that_end_the_process_or_a_thread_are_lines_too() -> None:
    out = started()
    try:
        fails()
    except RuntimeError as error:
        sys.excepthook(RuntimeError, error, error.__traceback__)
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    first, second = out.getvalue().splitlines()
    assert "level=critical" in first
    assert "level=error" in second
    assert SECRET not in first + second


def test_format_and_level_are_settings() -> None:
    assert log_settings(Environment({})) == LogSettings("logfmt", logging.INFO)
    given = {"RUNYARD_LOG_FORMAT": "json", "RUNYARD_LOG_LEVEL": "debug"}
    assert LogSettings("json", logging.DEBUG).environment() == given
    assert log_settings(Environment(given)) == LogSettings("json", logging.DEBUG)
    with pytest.raises(BadSetting, match="RUNYARD_LOG_FORMAT must be logfmt or json, not 'xml'"):
        log_settings(Environment({"RUNYARD_LOG_FORMAT": "xml"}))
    with pytest.raises(BadSetting, match="RUNYARD_LOG_LEVEL must be debug, info, warning or error, not 'all'"):
        log_settings(Environment({"RUNYARD_LOG_LEVEL": "all"}))
