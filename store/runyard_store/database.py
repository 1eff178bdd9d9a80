"""One open database: connections, transactions and the one place where its failures become errors of the contract.

Opened once per process by gateway, operator and runtime (on the loop that uses it) and passed to every function of
this package. LangGraph's savers use connections of their own (checkpoints.py).
"""

import asyncio
import contextlib
import os
import select
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, event
from sqlalchemy.exc import DataError, DisconnectionError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from runyard_api.errors import Invalid, Unavailable
from runyard_store.containment import json_contains
from runyard_store.urls import DatabaseUrl, Kind, parse_url

BUSY_TIMEOUT_MS = 15_000
STATEMENT_TIMEOUT_MS = 15_000
CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 10
SESSION_OPTIONS = (
    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c idle_in_transaction_session_timeout=30000 -c timezone=UTC"
)
CONNECTION_ARGS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "options": SESSION_OPTIONS,
    "prepare_threshold": 0,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


@dataclass(frozen=True)
class Database:
    """Use it from one event loop. `kind` is "sqlite" or "postgresql". A server that takes connections and then is
    silent is given up after `_patience` seconds: its own timeouts don't run then, and its kernel still acknowledges."""

    kind: Kind
    _engine: AsyncEngine
    _single: AsyncEngine
    _patience: float | None = None
    _sqlite_writer: asyncio.Lock = field(default_factory=asyncio.Lock)

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction, committed at the end and rolled back on any exception. Raises Unavailable, Invalid."""
        with database_errors():
            async with asyncio.timeout(self._patience), self._writer(), self._engine.begin() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def single(self) -> AsyncIterator[AsyncConnection]:
        """For exactly one writing statement, its own transaction: one round trip. Raises Unavailable, Invalid."""
        with database_errors():
            async with asyncio.timeout(self._patience), self._writer(), self._single.connect() as connection:
                yield connection

    def together(self) -> contextlib.AbstractAsyncContextManager[AsyncConnection]:
        """For what is one statement on Postgres and a transaction of several on sqlite (see together.py)."""
        return self.single() if self.kind == "postgresql" else self.begin()

    @contextlib.asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """For reading; each statement sees its own snapshot. Raises Unavailable."""
        with database_errors():
            async with asyncio.timeout(self._patience), self._single.connect() as connection:
                yield connection

    def pool_usage(self) -> tuple[int, int]:
        """Connections in use, and at most."""
        pool: Any = self._engine.sync_engine.pool
        return pool.checkedout(), pool.size()

    async def close(self) -> None:
        """Closes every connection."""
        await self._engine.dispose()

    def _writer(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Sqlite has one writer; waiting in our own fair queue beats its busy handler, which polls and starves."""
        return self._sqlite_writer if self.kind == "sqlite" else contextlib.nullcontext()


async def open_database(
    url: str, pool_size: int = 10, *, pool_seconds: float = POOL_TIMEOUT_S, patience: float | None = None
) -> Database:
    """Opens the database at `url` (see urls.py) with at most `pool_size` connections, on the running loop.
    `pool_seconds`: how long a use waits for a free one; `patience`: how long it may take in all, None: for ever.

    A Postgres that is down isn't an error here but at the first use, so services can start before it. Raises
    ValueError for a URL that isn't understood, Unavailable when a sqlite file can't be made.
    """
    parsed = parse_url(url)
    make = _sqlite_engine if parsed.kind == "sqlite" else _postgres_engine
    engine = make(parsed, pool_size, pool_seconds)
    return Database(parsed.kind, engine, engine.execution_options(isolation_level="AUTOCOMMIT"), patience)


@contextlib.contextmanager
def database_errors() -> Iterator[None]:
    """Maps what drivers and pools raise: a value that can't be stored → Invalid, everything else but IntegrityError →
    Unavailable."""
    try:
        yield
    except IntegrityError:
        raise
    except DataError as error:
        raise Invalid(f"a value can't be stored: {_first_line(error)}") from error
    except (SQLAlchemyError, OSError) as error:
        if _beyond_limits(error):
            raise Invalid(f"a value can't be stored: {_first_line(error)}") from error
        raise Unavailable(f"the database doesn't answer: {_first_line(error)}") from error


def _beyond_limits(error: BaseException) -> bool:
    """Whether Postgres says that a value is larger than it can be: its class 54. No second try changes that."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    return state.startswith("54")


def create_private_file(parsed: DatabaseUrl) -> None:
    """Makes the sqlite file with mode 0600 if it doesn't exist; sqlite gives its side files the same mode."""
    assert parsed.path is not None
    try:
        os.close(os.open(parsed.path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise Unavailable(f"the database file {parsed.path} can't be opened: {error.strerror}") from error


def _to_json(value: Any) -> str:
    return orjson.dumps(value).decode()


ENGINE_OPTIONS: dict[str, Any] = {
    "max_overflow": 0,
    "hide_parameters": True,
    "json_serializer": _to_json,
    "json_deserializer": orjson.loads,
}


def _first_line(error: BaseException) -> str:
    """The driver's own sentence, without the statement and its parameters: those hold what users wrote."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _sqlite_engine(parsed: DatabaseUrl, pool_size: int, pool_seconds: float) -> AsyncEngine:
    create_private_file(parsed)
    engine = create_async_engine(parsed.async_url, pool_size=pool_size, pool_timeout=pool_seconds, **ENGINE_OPTIONS)

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in sqlite_pragmas():
            cursor.execute(pragma)
        cursor.close()
        connection.create_function("runyard_contains", 2, json_contains, deterministic=True)

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # Deferred transactions that read before they write fail at once under load; taking the lock first waits.
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def sqlite_pragmas() -> tuple[str, ...]:
    """What every sqlite connection runs first. NORMAL keeps the file whole; a power cut may lose the last commits."""
    return (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=NORMAL",
        f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
        "PRAGMA foreign_keys=ON",
    )


def _postgres_engine(parsed: DatabaseUrl, pool_size: int, pool_seconds: float) -> AsyncEngine:
    engine = create_async_engine(
        parsed.async_url, pool_size=pool_size, pool_timeout=pool_seconds, connect_args=CONNECTION_ARGS, **ENGINE_OPTIONS
    )

    @event.listens_for(engine.sync_engine, "checkout")
    def check(connection: Any, _record: Any, _proxy: Any) -> None:
        if hung_up(connection.driver_connection.fileno()):
            raise DisconnectionError("the server closed this connection")

    return engine


def hung_up(file_number: int) -> bool:
    """Whether an idle connection has something to read: a server that went away closed it. Costs no round trip."""
    poll = select.poll()
    poll.register(file_number, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))
