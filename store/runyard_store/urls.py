"""Database URLs as people write them, and the forms the drivers want. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

Kind = Literal["sqlite", "postgresql"]


@dataclass(frozen=True)
class DatabaseUrl:
    """`async_url` and `sync_url` are for SQLAlchemy; `path` is set for sqlite, `conninfo` (a URI) for Postgres."""

    kind: Kind
    async_url: URL
    sync_url: URL
    path: Path | None = None
    conninfo: str | None = None


def sqlite_url(path: Path) -> str:
    """The URL of the sqlite file at an absolute path, whatever characters the path has."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def parse_url(url: str) -> DatabaseUrl:
    """Reads `sqlite:////abs/path.db` or `postgresql://user@host/db`. Raises ValueError, without the password."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(
            "the database URL can't be parsed; use postgresql://… or sqlite:////absolute/path.db"
        ) from None
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        if not parsed.database or not Path(parsed.database).is_absolute():
            raise ValueError("a sqlite database URL needs an absolute path: sqlite:////absolute/path.db")
        return DatabaseUrl(
            kind="sqlite",
            async_url=parsed.set(drivername="sqlite+aiosqlite"),
            sync_url=parsed.set(drivername="sqlite+pysqlite"),
            path=Path(parsed.database),
        )
    if backend in ("postgresql", "postgres"):
        driver = parsed.set(drivername="postgresql+psycopg")
        plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        return DatabaseUrl(kind="postgresql", async_url=driver, sync_url=driver, conninfo=plain)
    raise ValueError(f"the database URL begins with {backend!r}; allowed are postgresql and sqlite")
