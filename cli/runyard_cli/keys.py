"""`runyard keys`: makes, lists and revokes the API keys of a database or of an installed release. Called by `main`.

A new key is made here and printed here; only its SHA-256 leaves the terminal. The work is done by
runyard_store.keys_command, in this process or in the release's gateway pod.
"""

import secrets
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from runyard_api.tokens import API_KEY_BYTES, api_key, token_hash

if TYPE_CHECKING:
    from runyard_cli.keys_places import Place

app = typer.Typer(name="keys", help="API keys of the gateway: create, list, revoke.", no_args_is_help=True)


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Where:
    """Which keys are meant, as the person said it."""

    database: str | None
    release: str | None
    namespace: str | None
    context: str | None

    def place(self) -> "Place":
        """A release as soon as one is described, even where the variable with a database's URL is set."""
        from runyard_cli.keys_places import in_database, in_release  # not above: `--help` has to be quick

        described = self.release or self.namespace or self.context
        if self.database and not described:
            return in_database(self.database)
        return in_release(self.release or "runyard", namespace=self.namespace, context=self.context)


Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="RUNYARD_DATABASE_URL",
        help="Work on this database, postgresql://… or sqlite:///…. Without it: on an installed release.",
    ),
]
Release = Annotated[
    str | None, typer.Option(metavar="NAME", help="The Helm release, reached by kubectl.  [default: runyard]")
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="The release's namespace.  [default: the context's]"),
]
KubeContext = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="The kubeconfig's context.  [default: the current one]")
]
OutputAs = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]


@app.command()
def create(
    user: Annotated[str, typer.Option(metavar="USER", help="The user that requests with this key act as.")],
    name: Annotated[str, typer.Option(metavar="TEXT", help="What the key is for; shown in the list.")],
    database: Database = None,
    release: Release = None,
    namespace: Namespace = None,
    context: KubeContext = None,
    output: OutputAs = Output.TEXT,
) -> None:
    """Make a key and print it, this once: only its hash is stored."""
    key = api_key(secrets.token_bytes(API_KEY_BYTES))
    place = Where(database, release, namespace, context).place()
    (made,) = place(["create", f"--user={user}", f"--name={name}", f"--hash={token_hash(key)}"])
    if output is Output.JSON:
        _print_json({"key": key, **made})
        return
    _say(f"Made the key {made['id']} of {made['user']}. It isn't shown again:")
    typer.echo(key)


@app.command("list")
def list_(
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only this user's keys.")] = None,
    database: Database = None,
    release: Release = None,
    namespace: Namespace = None,
    context: KubeContext = None,
    output: OutputAs = Output.TEXT,
) -> None:
    """List all keys, revoked ones included. Keys themselves can't be shown."""
    found = Where(database, release, namespace, context).place()(["list", *([f"--user={user}"] if user else [])])
    if output is Output.JSON:
        _print_json(found)
        return
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("ID", "USER", "NAME", "CREATED", "REVOKED"):
        table.add_column(title, overflow="fold", no_wrap=title != "NAME")
    for row in found:
        table.add_row(row["id"], row["user"], row["name"], _minute(row["created_at"]), _minute(row["revoked_at"]))
    console = Console(highlight=False, markup=False)
    Console(width=None if console.is_terminal else 200, highlight=False, markup=False).print(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `list` shows it.")],
    database: Database = None,
    release: Release = None,
    namespace: Namespace = None,
    context: KubeContext = None,
    output: OutputAs = Output.TEXT,
) -> None:
    """End a key. Gateways stop taking it within 10 seconds; streams that are open go on to their end."""
    (ended,) = Where(database, release, namespace, context).place()(["revoke", "--", key_id])
    if output is Output.JSON:
        _print_json(ended)
    else:
        _say(f"The key {ended['id']} of {ended['user']} is revoked since {_minute(ended['revoked_at'])}.")


def _minute(time: str | None) -> str:
    """`2026-01-31 12:00` in UTC; a dash for never."""
    return time[:16].replace("T", " ") + "Z" if time else "-"


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


def _print_json(value: Any) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
