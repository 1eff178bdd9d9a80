"""Prepares a cluster's database: waits for it, migrates it, makes the services' roles, adds the first API key.

Run by the chart's migration Job as `python -m runyard_store.prepare` in the runtime's image, with the environment

    RUNYARD_DATABASE_URL                                            the owner's
    RUNYARD_GATEWAY_URL, RUNYARD_OPERATOR_URL, RUNYARD_RUNTIME_URL  what each service will use
    RUNYARD_FIRST_KEY_FILE                                          file with the first API key; unset: none is added
    RUNYARD_WAIT_SECONDS                                            how long to wait for the server (default 300)

Safe to run again, and two at once.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from runyard_api.errors import RunyardError, Unavailable
from runyard_api.names import DEFAULT_USER, PRINCIPALS
from runyard_store.database import open_database
from runyard_store.keys import add_key
from runyard_store.migrate import migrate
from runyard_store.roles import Role, apply_roles, role_of
from runyard_store.urls import parse_url

RETRY_SECONDS = 1.0
CONNECT_SECONDS = 5


@dataclass(frozen=True)
class Settings:
    """`owner_url` connects as the tables' owner; `first_key` None: no key is added; `wait_seconds` for the server."""

    owner_url: str
    roles: tuple[Role, ...]
    first_key: str | None
    wait_seconds: float


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Reads the environment. Raises ValueError with one sentence naming the variable."""
    missing = [name for name in ("RUNYARD_DATABASE_URL", *map(_variable, PRINCIPALS)) if not environ.get(name)]
    if missing:
        raise ValueError(f"{missing[0]} is not set")
    key_file = environ.get("RUNYARD_FIRST_KEY_FILE")
    key = Path(key_file).read_text().strip() if key_file else None
    if key == "":
        raise ValueError("the file named by RUNYARD_FIRST_KEY_FILE is empty")
    wait = environ.get("RUNYARD_WAIT_SECONDS", "300")
    if not wait.isdigit():
        raise ValueError(f"RUNYARD_WAIT_SECONDS must be a whole number of seconds, not {wait!r}")
    roles = tuple(role_of(principal, environ[_variable(principal)]) for principal in PRINCIPALS)
    return Settings(environ["RUNYARD_DATABASE_URL"], roles, key, float(wait))


def wait_for_server(
    conninfo: str,
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when the server takes a connection. Raises Unavailable when it hasn't within `seconds`."""
    deadline = clock() + seconds
    while True:
        try:
            psycopg.connect(conninfo, connect_timeout=CONNECT_SECONDS).close()
            return
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[0]
        if clock() >= deadline:
            raise Unavailable(f"the database didn't answer within {seconds:.0f} s: {reason}")
        sleep(RETRY_SECONDS)


def prepare(settings: Settings) -> None:
    """Does all steps in their order. Raises Unavailable, ValueError, psycopg.Error."""
    conninfo = parse_url(settings.owner_url).conninfo
    if conninfo is None:
        raise ValueError("RUNYARD_DATABASE_URL must be a postgresql:// URL")
    wait_for_server(conninfo, settings.wait_seconds)
    _say("the database answers")
    migrate(settings.owner_url)
    _say("the schema is this version's")
    with psycopg.connect(conninfo, connect_timeout=CONNECT_SECONDS) as connection:
        apply_roles(connection, list(settings.roles))
    _say(f"roles: {', '.join(role.name for role in settings.roles)}")
    if settings.first_key is not None:
        asyncio.run(_add_first_key(settings.owner_url, settings.first_key))
        _say("the first API key is known")


async def _add_first_key(url: str, key: str) -> None:
    database = await open_database(url, pool_size=1)
    try:
        await add_key(database, key, DEFAULT_USER, "first", datetime.now(UTC))
    finally:
        await database.close()


def main() -> None:
    """Ends with 1 and one sentence when the database can't be prepared."""
    try:
        prepare(read_settings(os.environ))
    except RunyardError as error:
        sys.exit(f"runyard-prepare: {error.detail}")
    except (ValueError, OSError, psycopg.Error) as error:
        sys.exit(f"runyard-prepare: {str(error).strip().splitlines()[0]}")


def _variable(principal: str) -> str:
    return f"RUNYARD_{principal.upper()}_URL"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
