"""Column types that mean the same on sqlite and Postgres. Used by tables.py and the migrations; no I/O."""

from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import JSON, DateTime, Dialect, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator


class JsonText(TypeDecorator[Any]):
    """A JSON document kept as text: no database parses it, so NULs, depth and big numbers come back as they were.

    Binds any value orjson can write, or `bytes` that already are JSON; None is SQL NULL.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return (value if isinstance(value, bytes) else orjson.dumps(value)).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else orjson.loads(value)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time in UTC; sqlite has no time zones, so it stores the naive UTC time."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


FilterableJson = JSON().with_variant(JSONB(), "postgresql")
"""JSON that queries look into: JSONB on Postgres. It can't hold the character U+0000."""
