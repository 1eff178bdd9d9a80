"""`runyard dev`: checks what a person can get wrong, then runs the process; every failure leaves as one sentence.

Called by `main`. What is checked first needs no heavy import, so that a wrong path is told at once.
"""

import contextlib
import sys
import time
from importlib.metadata import version

from rich.console import Console

from runyard_api.errors import RunyardError
from runyard_cli.embedded.lock import owned
from runyard_cli.embedded.options import Options
from runyard_cli.embedded.report import JsonLines, Lines, Quietly, Report
from runyard_cli.failure import CommandError
from runyard_runtime.project import ProjectError, read_project


def serve(options: Options) -> None:
    """Runs until SIGINT or SIGTERM. Raises CommandError with one sentence when it can't start."""
    began = time.monotonic()
    report = report_of(options)
    state = options.state.absolute()
    with contextlib.ExitStack() as stack:
        if options.as_json:  # what graphs print must not get between the JSON lines
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            project = read_project(options.config)
            killed = stack.enter_context(owned(state))
            report.starting(version("runyard"), options.config, project.graphs)
            from runyard_cli.embedded.process import Start, run

            run(options, project, state, report, Start(began, after_kill=killed))
        except ProjectError as error:
            raise CommandError(sentence(str(error))) from error
        except RunyardError as error:
            raise CommandError(sentence(error.detail)) from error


def report_of(options: Options) -> Report:
    """The report that the person asked for, on stdout."""
    if options.as_json:
        report: Report = JsonLines(Console(file=sys.stdout))
    else:
        report = Lines(Console(highlight=False), verbose=options.detail == "verbose")
    return Quietly(report) if options.detail == "quiet" else report


def sentence(text: str) -> str:
    """A capital at the start, unless a name like a file's stands there, and a full stop at the end."""
    text = text.strip()
    first = text.partition(" ")[0]
    start = first.capitalize() if first.isalpha() and first.islower() else first
    return start + text[len(first) :] + ("" if text.endswith((".", "!", "?")) else ".")
