"""Log lines of all parts, the libraries' and the graphs' included, on their way to the report. Called by `process`."""

import logging
import sys
from typing import NoReturn

import structlog
from structlog.typing import EventDict, WrappedLogger

from runyard_cli.embedded.options import Detail
from runyard_cli.embedded.report import LogLine, Report

OURS: dict[Detail, int] = {"quiet": logging.WARNING, "normal": logging.WARNING, "verbose": logging.DEBUG}
LIBRARIES: dict[Detail, int] = {"quiet": logging.WARNING, "normal": logging.WARNING, "verbose": logging.INFO}


def report_logs(report: Report, detail: Detail) -> None:
    """From now on warnings and errors go to the report; with "verbose" also what our parts say in detail."""

    def tell(_: WrappedLogger, method: str, event: EventDict) -> NoReturn:
        error = _exception(event.pop("exc_info", None))
        report.log(LogLine(event.pop("level", method), str(event.pop("event")), dict(event), error))
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, _with_exception, tell],
        wrapper_class=structlog.make_filtering_bound_logger(OURS[detail]),
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToReport(report)]
    root.setLevel(LIBRARIES[detail])


class _ToReport(logging.Handler):
    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if "timeout graceful shutdown" in str(record.msg):
            return  # uvicorn's word for streams that were cut because the person stopped the server
        text = record.getMessage()
        if record.name == "asyncio":
            text = text.partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        self._report.log(LogLine(record.levelname.lower(), text, {"logger": record.name}, error))


def _with_exception(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if method == "exception":
        event.setdefault("exc_info", True)
    return event


def _exception(info: object) -> BaseException | None:
    if isinstance(info, BaseException):
        return info
    if isinstance(info, tuple):
        return _exception(info[1])
    return sys.exc_info()[1] if info else None
