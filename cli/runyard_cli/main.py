"""The command `runyard` (also installed as `kubectl-runyard`): options, help, and errors as one plain sentence.

Each command only parses; the work is in the module it imports when it runs, so that `--help` is quick.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from runyard_cli import keys
from runyard_cli.failure import CommandError

app = typer.Typer(
    name="runyard",
    help="Runyard: AI-agent runs and sandboxes, native to Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(keys.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"runyard {version('runyard')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Runyard: AI-agent runs and sandboxes, native to Kubernetes."""


Config = Annotated[Path, typer.Option(metavar="FILE", help="The project's langgraph.json.")]
Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on; beyond this machine callers need the token.")
]
Port = Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; 0 takes a free one.", min=0, max=65535)]
State = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for threads, runs and checkpoints; kept.")]
CONFIG, HOST, PORT, STATE = Path("langgraph.json"), "127.0.0.1", 2024, Path(".runyard")


@app.command()
def dev(
    config: Config = CONFIG,
    host: Host = HOST,
    port: Port = PORT,
    state: State = STATE,
    slots: Annotated[int, typer.Option(metavar="N", help="Runs executed at the same time.", min=1, max=1000)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")] = False,
    token: Annotated[
        bool, typer.Option("--token", help="Answer only who sends the token in the state folder's file 'token'.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name to answer for, beside localhost. May be repeated."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Whose pages may call, such as https://app.example, beside localhost's. May be repeated.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only warnings and errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print details, and whole tracebacks.")] = False,
) -> None:
    """Serve a LangGraph project on this machine.

    Runs the same gateway and runtime as in a cluster, in one process, on an sqlite database in the state folder.
    It needs no key. Stop it with Ctrl-C; threads are there again at the next start, unfinished runs go on.
    """
    with _embedded_extra():
        from runyard_cli.embedded.options import Options
        from runyard_cli.embedded.serve import serve

    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose contradict each other")
    serve(
        Options(
            config=config,
            host=host,
            port=port,
            state=state,
            slots=slots,
            as_json=as_json,
            token=token,
            allow_hosts=tuple(allow_host or ()),
            allow_origins=tuple(allow_origin or ()),
            detail="quiet" if quiet else "verbose" if verbose else "normal",
        )
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not a return: that would wait for threads of sync graph code, which nothing can stop


@app.command()
def doctor(config: Config = CONFIG, host: Host = HOST, port: Port = PORT, state: State = STATE) -> None:
    """Check what `runyard dev` needs on this machine, one line each.

    Ends with 1 if something is missing. Changes nothing.
    """
    with _embedded_extra():
        from runyard_cli.doctor import examine
        from runyard_cli.embedded.options import Options

    if not examine(Options(config=config, host=host, port=port, state=state, slots=1), Console(highlight=False)):
        raise typer.Exit(1)


@contextmanager
def _embedded_extra() -> Iterator[None]:
    """Around imports of what `runyard keys` does without: an installation of the extra `cli` alone lacks it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the module {error.name} isn't installed: this command needs Runyard's extra 'embedded' "
            "(pip install '.[embedded]' in its repository)."
        ) from error


def main() -> None:
    """Entry point of the console scripts."""
    try:
        app()
    except CommandError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"Error: {error}", markup=False, style="red")
        raise SystemExit(1) from None
