"""Finding threads: filters, order, pages and totals. Called by the gateway."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from sqlalchemy import ColumnElement, Select, Text, and_, case, cast, func, literal, literal_column, select

from runyard_api.errors import Invalid
from runyard_api.states import ThreadState
from runyard_store.database import Database
from runyard_store.rows import UNKNOWN_HEAD, ThreadRow, thread_row
from runyard_store.tables import threads

PAGE_BYTES = 32 * 2**20
"""What one page may hold: it is in memory several times on its way out."""
SortBy = Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"]


@dataclass(frozen=True, kw_only=True)
class ThreadFilter:
    """Threads of one user that match all that is given. `metadata` and `values`: JSON that a thread's contains; a
    thread without values has none that match."""

    user_id: str
    ids: Sequence[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    status: ThreadState | None = None


@dataclass(frozen=True, kw_only=True)
class ThreadPage:
    """Which of them, in which order. Without `with_values` the rows' values aren't read and None. `copies`: how often
    the answer may repeat what was read."""

    limit: int = 10
    offset: int = 0
    sort_by: SortBy = "created_at"
    descending: bool = True
    with_values: bool = True
    copies: int = 1


async def search_threads(db: Database, wanted: ThreadFilter, page: ThreadPage) -> list[ThreadRow]:
    """One page. A row's `head` is None, or UNKNOWN_HEAD where that is what it is: heads aren't read here.

    Raises Invalid (a filter that no document can contain, a page larger than PAGE_BYTES), Unavailable.
    """
    where = _where(db, wanted)
    query = _columns(page).where(where).order_by(*_order(page)).limit(page.limit).offset(page.offset)
    async with db.read() as connection:
        size = (await connection.execute(_size(db, where, page))).scalar_one()
        if size * page.copies > PAGE_BYTES:
            raise Invalid(
                f"limit: the threads of this page hold {size} bytes; at most {PAGE_BYTES // page.copies} are answered "
                "at once: ask for fewer, or by select for less of them"
            )
        return [thread_row(row) for row in (await connection.execute(query)).mappings()]


async def count_threads(db: Database, wanted: ThreadFilter) -> int:
    """How many threads match. Raises Invalid, Unavailable."""
    async with db.read() as connection:
        count = select(func.count()).select_from(threads).where(_where(db, wanted))
        return (await connection.execute(count)).scalar_one()


_UNKNOWN = orjson.dumps(UNKNOWN_HEAD).decode()


def _size(db: Database, where: ColumnElement[bool], page: ThreadPage) -> Select[Any]:
    """Bytes of what people put into the threads of a page: read before they are, since they may be of any size."""
    length = func.octet_length if db.kind == "postgresql" else func.length
    size: ColumnElement[int] = length(cast(threads.c.metadata, Text))
    if page.with_values:
        size = size + func.coalesce(length(cast(threads.c["values"], Text)), 0)
    rows = select(size.label("size")).where(where).order_by(*_order(page)).limit(page.limit).offset(page.offset)
    return select(func.coalesce(func.sum(rows.subquery().c.size), 0))


def _columns(page: ThreadPage) -> Select[Any]:
    unknown = literal_column(f"'{_UNKNOWN}'", threads.c.head.type)
    head = case((threads.c.head == UNKNOWN_HEAD, unknown), else_=None)
    values: ColumnElement[Any] = threads.c["values"] if page.with_values else literal(None, threads.c["values"].type)
    kept = (column for column in threads.c if column.name not in ("head", "values"))
    return select(*kept, values.label("values"), head.label("head"))


def _order(page: ThreadPage) -> tuple[ColumnElement[Any], ...]:
    """The id decides between equals, so that pages don't overlap; threads without the time come last."""
    column = threads.c[page.sort_by]
    by, last = (column.desc(), threads.c.thread_id.desc()) if page.descending else (column.asc(), threads.c.thread_id)
    return (by.nulls_last() if column.nullable else by, last)


def _where(db: Database, wanted: ThreadFilter) -> ColumnElement[bool]:
    parts: list[ColumnElement[bool]] = [threads.c.user_id == wanted.user_id]
    if wanted.ids is not None:
        parts.append(threads.c.thread_id.in_(wanted.ids))
    if wanted.status is not None:
        parts.append(threads.c.status == wanted.status)
    if wanted.metadata:
        own = threads.c.metadata
        if db.kind == "postgresql":
            parts.append(own.op("@>", is_comparison=True)(literal(wanted.metadata, own.type)))
        else:
            parts.append(_contains(own, wanted.metadata))
    if wanted.values:
        parts.append(_contains(threads.c["values"], wanted.values))
    return and_(*parts)


def _contains(document: ColumnElement[Any], wanted: dict[str, Any]) -> ColumnElement[bool]:
    return func.runyard_contains(document, orjson.dumps(wanted).decode())
