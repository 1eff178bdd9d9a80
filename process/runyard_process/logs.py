"""How a service's process logs: key=value or JSON lines on stderr, of our own loggers and of the libraries'.

`configure_logs` is called once by each service's `__main__`. Every line has timestamp, level, event and, where it is
about a run, run, thread and attempt (bound with `structlog.contextvars` by who works on it).

Nothing that a caller or a graph wrote may reach a log. Who logs picks the fields; what is done here is the rest: an
exception's text can hold input, so tracebacks name its class and lines only (`tracebacks`); libraries stay at
"warning", because what theirs say in detail holds bodies; and asyncio's lines lose the repr of the task that failed.
"""

import logging
import sys
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from runyard_process.environment import Environment
from runyard_process.tracebacks import plain_traceback

Format = Literal["logfmt", "json"]
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS: dict[str, Format] = {"logfmt": "logfmt", "json": "json"}
FIRST_KEYS = ["timestamp", "level", "event", "run", "thread", "attempt"]


@dataclass(frozen=True)
class LogSettings:
    """`form` of a line (RUNYARD_LOG_FORMAT); `level` from which our own loggers' lines are written, as `logging` counts
    (RUNYARD_LOG_LEVEL)."""

    form: Format = "logfmt"
    level: int = logging.INFO

    def environment(self) -> dict[str, str]:
        """The variables that say the same to another process."""
        level = next(name for name, number in LEVELS.items() if number == self.level)
        return {"RUNYARD_LOG_FORMAT": self.form, "RUNYARD_LOG_LEVEL": level}


DEFAULT_LOGS = LogSettings()


def log_settings(env: Environment) -> LogSettings:
    """Reads them. Raises BadSetting."""
    return LogSettings(
        form=env.choice("RUNYARD_LOG_FORMAT", LogSettings.form, FORMATS),
        level=env.choice("RUNYARD_LOG_LEVEL", LogSettings.level, LEVELS),
    )


def configure_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """From now on all loggers of the process write to `stream` (None: stderr), and so do errors that end a thread."""
    out = stream or sys.stderr
    shared = shared_processors()
    structlog.configure(
        processors=[*shared, *renderers(settings.form)],
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    take_in_libraries(shared, renderers(settings.form), out)
    log_uncaught()


def shared_processors() -> list[Processor]:
    """What every line gets before it is rendered."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(plain_traceback),
    ]


def renderers(form: Format) -> list[Processor]:
    """What makes the line of the fields."""
    if form == "json":
        return [structlog.processors.JSONRenderer(default=str)]
    return [_flat, structlog.processors.LogfmtRenderer(key_order=FIRST_KEYS, drop_missing=True, bool_as_flag=False)]


def take_in_libraries(shared: list[Processor], rendered: list[Processor], out: TextIO) -> None:
    """Lines of `logging` (uvicorn, kopf, asyncio, …) from "warning" up, in the same form."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, _without_repr, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
            keep_exc_info=False,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def log_uncaught() -> None:
    """An error that ends the process or a thread is a line like the others."""
    log = structlog.get_logger("runyard")

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("process ends by an error", exc_info=(kind, error, trace))

    def thread_ended(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            log.error("thread ended by an error", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))

    sys.excepthook = ended
    threading.excepthook = thread_ended


def _flat(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """logfmt's values are texts: what is None is left out. The renderer escapes quotes and line ends, the rest of the
    control characters are escaped here."""
    there = ((key, value) for key, value in event.items() if value is not None)
    return {key: value if isinstance(value, int | float) else _printable(str(value)) for key, value in there}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _without_repr(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """asyncio adds the repr of the failed task, and with it its error's text, in lines after the first."""
    if event.get("logger") == "asyncio":
        event["event"] = str(event["event"]).partition("\n")[0]
    return event
