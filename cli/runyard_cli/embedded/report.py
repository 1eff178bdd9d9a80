"""What `runyard dev` tells the person at the console: lines to read, or JSON lines with --json.

Made by `serve`; called by `process`, `dispatcher`, `requests` and `console_logs`. Imports nothing that takes time:
the first line has to be there at once.
"""

import json
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runyard_cli.embedded.frames import shown_frames

if TYPE_CHECKING:
    from runyard_cli.embedded.board import Entry

COLOURS = {"success": "green", "error": "red", "timeout": "red", "interrupted": "yellow"}
LEVELS = {"debug": "dim", "info": "dim", "warning": "yellow", "error": "red", "critical": "red"}
SHORT_ID = 8
"""Characters at the end of a run's id: those at its beginning are the time, alike in runs of one minute."""


@dataclass(frozen=True)
class Started:
    """What there is to say once the server answers, `seconds` after the command. `taken_up`: unfinished runs of an
    earlier start that go on now. `token_file`: where the token is that callers must send; None: they need none."""

    version: str
    url: str
    graphs: Mapping[str, str]
    config: Path
    state: Path
    taken_up: int
    seconds: float
    token_file: Path | None = None


@dataclass(frozen=True)
class LogLine:
    """What a part of the process logged. `fields`: what it is about, such as run and thread."""

    level: str
    message: str
    fields: Mapping[str, Any]
    error: BaseException | None = None


class RunReport(Protocol):
    """What the dispatcher tells of runs."""

    def run_started(self, run: "Entry") -> None: ...

    def run_ended(self, run: "Entry", seconds: float | None) -> None:
        """`seconds` since it started here; None when it never did."""
        ...


class Report(RunReport, Protocol):
    """One line, or a few, for each thing that happens."""

    def starting(self, version: str, config: Path, graphs: Mapping[str, str]) -> None:
        """The command has read the project; now it imports the graphs."""
        ...

    def started(self, started: Started) -> None: ...

    def stopping(self) -> None: ...

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """`seconds` until its response began."""
        ...

    def log(self, line: LogLine) -> None: ...


class Lines:
    """Lines for people. `verbose`: tracebacks are whole, else the libraries' lines are left out."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console, self._verbose = console, verbose

    def starting(self, version: str, config: Path, graphs: Mapping[str, str]) -> None:
        self._console.print(Text.assemble(("Runyard ", "bold"), (version, "dim"), f"  {config}"), soft_wrap=True)
        self._console.print(Text(f"Importing {', '.join(graphs)} …", style="dim"), soft_wrap=True)

    def started(self, started: Started) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        width = max((len(name) for name in started.graphs), default=0)
        graphs = [Text.assemble((f"{name:<{width}}", "bold"), f"  {where}") for name, where in started.graphs.items()]
        for label, line in zip(["Graphs", *[""] * len(graphs)], graphs, strict=False):
            table.add_row(label, line)
        table.add_row("API", Text(started.url, style="bold cyan"))
        table.add_row("Docs", Text(f"{started.url}/docs", style="cyan"))
        table.add_row("State", str(started.state))
        if started.token_file:
            table.add_row("Token", f"in {started.token_file}; callers send it as x-api-key")
        if started.taken_up:
            table.add_row("Runs", f"{started.taken_up} unfinished, going on now")
        self._console.print(f"Ready in {started.seconds:.1f} s\n")
        self._console.print(table)
        self._console.print(Text("\nCtrl-C stops. Threads and runs are kept in the state folder.\n", style="dim"))

    def log(self, line: LogLine) -> None:
        about = " ".join(f"{key}={one_line(str(value))}" for key, value in line.fields.items() if value is not None)
        colour = LEVELS.get(line.level, "yellow")
        self._line(Text.assemble((f"{line.level:<6} ", colour), f"{one_line(line.message)}  ", (about, "dim")))
        if line.error is not None:
            self._console.print(Text(_traceback(line.error, whole=self._verbose), style=colour), soft_wrap=True)

    def stopping(self) -> None:
        self._console.print(Text("Stopping …", style="dim"))

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        colour = "red" if status >= 500 else "yellow" if status >= 400 else "dim"
        self._line(
            Text.assemble(
                f"{method:<6} {one_line(path)} ", (str(status), colour), (f"  {seconds * 1000:.0f} ms", "dim")
            )
        )

    def run_started(self, run: "Entry") -> None:
        again = f", attempt {run.attempt}" if run.attempt > 1 else ""
        self._line(Text.assemble(("run", "bold"), f"    {run.graph_id} started{again}  ", (_ids(run), "dim")))

    def run_ended(self, run: "Entry", seconds: float | None) -> None:
        state = "rolled back" if run.rolled_back else run.state.value
        after = f" after {seconds:.1f} s" if seconds is not None else ""
        why = one_line(f": {run.error.error}: {run.error.message}") if run.error else ""
        styled = (state, COLOURS.get(state, "yellow"))
        self._line(
            Text.assemble(("run", "bold"), f"    {run.graph_id} ", styled, f"{after}{why}  ", (_ids(run), "dim"))
        )

    def _line(self, text: Text) -> None:
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        self._console.print(Text.assemble((f"{now}  ", "dim"), text), soft_wrap=True)


def one_line(text: str) -> str:
    """Text from outside, as it may stand in a terminal's line: no line ends, no control sequences."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _ids(run: "Entry") -> str:
    return f"run {run.run_id[-SHORT_ID:]} thread {run.thread_id[-SHORT_ID:]}"


def _traceback(error: BaseException, *, whole: bool) -> str:
    told = traceback.TracebackException.from_exception(error)
    if not whole:
        shown_frames(told)
    lines = "".join(told.format()).rstrip().splitlines()
    return "\n".join(f"          {one_line(line)}" for line in lines)


class JsonLines:
    """One JSON object per line, for programs: what is reported and, as event "log", what is logged."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()  # graphs log from threads of their own

    def starting(self, version: str, config: Path, graphs: Mapping[str, str]) -> None:
        self._event("starting", version=version, config=str(config), graphs=list(graphs))

    def log(self, line: LogLine) -> None:
        told = {
            key: value if isinstance(value, int | float | bool) else str(value) for key, value in line.fields.items()
        }
        if line.error is not None:
            told["exception"] = "".join(traceback.format_exception(line.error))
        self._event("log", **{**told, "level": line.level, "message": line.message})

    def started(self, started: Started) -> None:
        self._event(
            "started",
            version=started.version,
            url=started.url,
            graphs=list(started.graphs),
            state=str(started.state),
            taken_up=started.taken_up,
            seconds=round(started.seconds, 3),
            token_file=str(started.token_file) if started.token_file else None,
        )

    def stopping(self) -> None:
        self._event("stopping")

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        self._event("request", method=method, path=path, status=status, seconds=round(seconds, 4))

    def run_started(self, run: "Entry") -> None:
        self._event("run_started", run=run.run_id, thread=run.thread_id, graph=run.graph_id, attempt=run.attempt)

    def run_ended(self, run: "Entry", seconds: float | None) -> None:
        self._event(
            "run_ended",
            run=run.run_id,
            thread=run.thread_id,
            graph=run.graph_id,
            state=run.state.value,
            rolled_back=run.rolled_back,
            seconds=None if seconds is None else round(seconds, 3),
            error=run.error.model_dump() if run.error else None,
        )

    def _event(self, event: str, **fields: Any) -> None:
        line = json.dumps({**fields, "time": datetime.now().astimezone().isoformat(), "event": event})
        with self._lock:
            self._console.file.write(f"{line}\n")
            self._console.file.flush()


class Quietly:
    """A report without requests and without runs that end well."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.starting, self.started, self.log = report.starting, report.started, report.log
        self.stopping = report.stopping

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Says nothing."""

    def run_started(self, run: "Entry") -> None:
        """Says nothing."""

    def run_ended(self, run: "Entry", seconds: float | None) -> None:
        if run.error is not None:
            self._report.run_ended(run, seconds)
