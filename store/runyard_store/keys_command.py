"""The commands of `runyard keys` on one database: JSON out, never a key.

Run in the gateway's pod as `python -m runyard_store.keys_command COMMAND …`, on the database of RUNYARD_DATABASE_URL,
by the CLI of a person who may exec there; the same CLI calls `perform` itself when it is given a database. The key is
made in the person's terminal: only its hash comes here.
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NoReturn

import orjson

from runyard_api.errors import Invalid, RunyardError
from runyard_store.database import Database, open_database
from runyard_store.keys import KeyRow, create_key, list_keys, revoke_key

_HASH = re.compile(r"[0-9a-f]{64}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Invalid(message)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command and its options. Raises Invalid."""
    parser = _Parser(prog="runyard-keys", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create")
    for name in ("user", "name", "hash"):
        create.add_argument(f"--{name}", required=True)
    commands.add_parser("list").add_argument("--user")
    commands.add_parser("revoke").add_argument("key_id")
    options = parser.parse_args(arguments)
    if options.command == "create" and not _HASH.fullmatch(options.hash):
        raise Invalid("--hash must be a SHA-256 as 64 hex digits")
    return options


async def perform(url: str, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Does one command on the database at `url` and gives the keys it made, listed or revoked: `id`, `user`, `name`,
    `created_at`, `revoked_at` (RFC 3339 or null). Raises ValueError for the URL, and the errors of keys.py."""
    options = parse(arguments)
    database = await open_database(url, pool_size=1)
    try:
        return [_shown(row) for row in await _rows(database, options)]
    finally:
        await database.close()


async def _rows(database: Database, options: argparse.Namespace) -> list[KeyRow]:
    now = datetime.now(UTC)
    if options.command == "create":
        return [await create_key(database, options.hash, options.user, options.name, now)]
    if options.command == "revoke":
        return [await revoke_key(database, options.key_id, now)]
    return await list_keys(database, options.user)


def _shown(row: KeyRow) -> dict[str, Any]:
    values = {name.removeprefix("key_").removesuffix("_id"): value for name, value in asdict(row).items()}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def main() -> None:
    """Prints a JSON array of keys; of a failure `{"detail": <one sentence>}`, and ends with 1."""
    try:
        found: Any = asyncio.run(perform(os.environ.get("RUNYARD_DATABASE_URL", ""), sys.argv[1:]))
        failed = False
    except (RunyardError, ValueError) as error:
        found, failed = {"detail": str(error)}, True
    sys.stdout.write(orjson.dumps(found).decode() + "\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
