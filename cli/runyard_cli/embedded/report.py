"""What `runyard dev` tells the person at the console: lines to read, or JSON lines with --json.

Made by `serve`; called by `process`, `dispatcher` and `requests`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runyard_cli.embedded.board import Entry

COLOURS = {"success": "green", "error": "red", "timeout": "red", "interrupted": "yellow"}


@dataclass(frozen=True)
class Started:
    """What there is to say once the server answers. `taken_up`: unfinished runs of an earlier start that go on now."""

    version: str
    url: str
    graphs: Mapping[str, str]
    config: Path
    state: Path
    taken_up: int


class Report(Protocol):
    """One line, or a few, for each thing that happens."""

    def started(self, started: Started) -> None: ...

    def stopping(self) -> None: ...

    def request(self, method: str, path: str, status: int, seconds: float) -> None: ...

    def run_started(self, run: Entry) -> None: ...

    def run_ended(self, run: Entry, seconds: float | None) -> None:
        """`seconds` since it started here; None when it never did."""
        ...


class Lines:
    """Lines for people."""

    def __init__(self, console: Console) -> None:
        self._console = console

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
        if started.taken_up:
            table.add_row("Runs", f"{started.taken_up} unfinished, going on now")
        self._console.print(Text.assemble(("Runyard ", "bold"), (started.version, "dim"), f"  {started.config}\n"))
        self._console.print(table)
        self._console.print(Text("\nCtrl-C stops. Threads and runs are kept in the state folder.\n", style="dim"))

    def stopping(self) -> None:
        self._console.print(Text("Stopping …", style="dim"))

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        colour = "red" if status >= 500 else "yellow" if status >= 400 else "dim"
        self._line(
            Text.assemble(
                f"{method:<6} {one_line(path)} ", (str(status), colour), (f"  {seconds * 1000:.0f} ms", "dim")
            )
        )

    def run_started(self, run: Entry) -> None:
        again = f", attempt {run.attempt}" if run.attempt > 1 else ""
        self._line(Text.assemble(("run", "bold"), f"    {run.graph_id} started{again}  ", (run.run_id, "dim")))

    def run_ended(self, run: Entry, seconds: float | None) -> None:
        state = "rolled back" if run.rolled_back else run.state.value
        after = f" after {seconds:.1f} s" if seconds is not None else ""
        why = one_line(f": {run.error.error}: {run.error.message}") if run.error else ""
        styled = (state, COLOURS.get(state, "yellow"))
        self._line(
            Text.assemble(("run", "bold"), f"    {run.graph_id} ", styled, f"{after}{why}  ", (run.run_id, "dim"))
        )

    def _line(self, text: Text) -> None:
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        self._console.print(Text.assemble((f"{now}  ", "dim"), text), soft_wrap=True)


def one_line(text: str) -> str:
    """Text from outside, as it may stand in a terminal's line: no line ends, no control sequences."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


class JsonLines:
    """One JSON object per line, for programs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, started: Started) -> None:
        self._event(
            "started",
            version=started.version,
            url=started.url,
            graphs=list(started.graphs),
            state=str(started.state),
            taken_up=started.taken_up,
        )

    def stopping(self) -> None:
        self._event("stopping")

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        self._event("request", method=method, path=path, status=status, seconds=round(seconds, 4))

    def run_started(self, run: Entry) -> None:
        self._event("run_started", run=run.run_id, thread=run.thread_id, graph=run.graph_id, attempt=run.attempt)

    def run_ended(self, run: Entry, seconds: float | None) -> None:
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
        line = json.dumps({"time": datetime.now().astimezone().isoformat(), "event": event, **fields})
        self._console.file.write(f"{line}\n")
        self._console.file.flush()
