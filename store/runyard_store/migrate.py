"""Bringing a database to this version's schema. Run by the chart's migration Job and at an embedded start.

Services only check it (`require_schema`). Alembic and LangGraph's savers are imported when they are needed, so that
those services need neither.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, event, text

from runyard_api.errors import Unavailable
from runyard_store.database import CONNECT_TIMEOUT_S, Database, create_private_file, database_errors, sqlite_pragmas
from runyard_store.urls import DatabaseUrl, parse_url

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import DictRow

REVISION = "0005"
"""The newest revision in migrations/versions: what services of this version need."""

_LOCK_ID = 7_268_390_122
"""Postgres advisory lock: two migration jobs at once wait for each other."""

# Claims look for the checkpoints after a point in all namespaces; without it that walks the whole thread.
_CHECKPOINTS_BY_ID = "CREATE INDEX IF NOT EXISTS runyard_checkpoints_by_id ON checkpoints (thread_id, checkpoint_id)"


def migrate(url: str) -> None:
    """Creates or upgrades our tables, then LangGraph's own. Needs the runtime extra. Safe to run twice and at once.

    Raises ValueError for a URL that isn't understood, Unavailable.
    """
    parsed = parse_url(url)
    with database_errors():
        if parsed.kind == "sqlite":
            _migrate_sqlite(parsed)
        else:
            _migrate_postgres(parsed)


async def require_schema(db: Database) -> None:
    """Raises Unavailable unless the database has this version's schema or a newer one.

    Newer is fine: a migration only adds, and what two versions back still use is removed later. So the pods of an
    older image start, and serve, while and after a release is upgraded.
    """
    try:
        async with db.read() as connection:
            found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one_or_none()
    except Unavailable as error:
        raise Unavailable(f"the database's schema can't be read ({error.detail}); has runyard-migrate run?") from error
    if found is None or int(found) < int(REVISION):
        raise Unavailable(f"the database has schema {found}, this version needs {REVISION}: run runyard-migrate")


def main() -> None:
    """`runyard-migrate`: reads RUNYARD_DATABASE_URL; ends with 1 and one sentence when it can't."""
    url = os.environ.get("RUNYARD_DATABASE_URL", "")
    if not url:
        sys.exit("RUNYARD_DATABASE_URL is not set; use postgresql://user:password@host/database")
    try:
        migrate(url)
    except (ValueError, Unavailable) as error:
        sys.exit(f"runyard-migrate: {error}")
    print(f"The database has schema {REVISION}.")


def _upgrade(parsed: DatabaseUrl) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    engine = create_engine(parsed.sync_url)
    if parsed.kind == "sqlite":

        @event.listens_for(engine, "connect")
        def prepare(connection: object, _record: object) -> None:
            for pragma in sqlite_pragmas():
                connection.execute(pragma)  # type: ignore[attr-defined]

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    try:
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    except CommandError as error:  # Alembic doesn't know the revision that it found
        raise Unavailable(
            f"the database was written by a newer version of Runyard; this version knows schemas up to {REVISION}"
        ) from error
    finally:
        engine.dispose()


def _migrate_sqlite(parsed: DatabaseUrl) -> None:
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.store.sqlite import SqliteStore

    create_private_file(parsed)
    _upgrade(parsed)
    try:
        with contextlib.closing(sqlite3.connect(str(parsed.path), isolation_level=None)) as connection:
            SqliteSaver(connection).setup()
            SqliteStore(connection).setup()
            connection.execute(_CHECKPOINTS_BY_ID)
    except sqlite3.Error as error:
        raise Unavailable(f"LangGraph's tables can't be made: {error}") from error


def _migrate_postgres(parsed: DatabaseUrl) -> None:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.store.postgres import PostgresStore
    from psycopg.rows import dict_row

    assert parsed.conninfo is not None
    try:
        with (
            psycopg.connect(
                parsed.conninfo, autocommit=True, row_factory=dict_row, connect_timeout=CONNECT_TIMEOUT_S
            ) as connection,
            _locked(connection),
        ):
            _upgrade(parsed)
            PostgresSaver(connection).setup()
            PostgresStore(connection).setup()
            connection.execute(_CHECKPOINTS_BY_ID)
    except psycopg.Error as error:
        raise Unavailable(f"the database can't be migrated: {str(error).strip().splitlines()[0]}") from error


@contextlib.contextmanager
def _locked(connection: "Connection[DictRow]") -> Iterator[None]:
    # Asked again and again, not waited for: a waiting statement would block the CREATE INDEX CONCURRENTLY it waits for.
    while not _try_lock(connection):
        time.sleep(0.2)
    try:
        yield
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK_ID,))


def _try_lock(connection: "Connection[DictRow]") -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (_LOCK_ID,)).fetchone()
    return bool(row and row["got"])
