"""Statements built once and executed together: one round trip on Postgres (CTEs), one after the other on sqlite.

Used inside this package on the hot path. Parameters are named `<table>_<column>`, because SQLAlchemy keeps the bare
column names of an update to itself.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Select, Table, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import UpdateBase

from runyard_store.urls import Kind


def bind(table: Table, *names: str) -> dict[str, BindParameter[Any]]:
    """Column name → its parameter, for `.values(…)` of a prepared insert or update."""
    return {name: of(table, name) for name in names}


def of(table: Table, name: str) -> BindParameter[Any]:
    """The parameter of one column."""
    return bindparam(f"{table.name}_{name}", type_=table.c[name].type)


def parameters(table: Table, **values: Any) -> dict[str, Any]:
    """The values for `bind`: parameter name → value."""
    return {f"{table.name}_{name}": value for name, value in values.items()}


class Together:
    """Independent writing statements, each with a RETURNING of one column, prepared once.

    On Postgres all see the snapshot from before any of them; what they change must be locked already or new.
    """

    def __init__(self, *statements: UpdateBase) -> None:
        self._statements = statements
        self._combined = _combine(statements)

    async def execute(self, kind: Kind, connection: AsyncConnection, values: dict[str, Any]) -> tuple[int, ...]:
        """Executes all and returns how many rows each one changed."""
        if kind == "postgresql":
            return tuple((await connection.execute(self._combined, values)).one())
        return tuple([len((await connection.execute(s, values)).all()) for s in self._statements])


def _combine(statements: Sequence[UpdateBase]) -> Select[Any]:
    ctes = [statement.cte(f"step_{n}") for n, statement in enumerate(statements)]
    return select(*(select(func.count()).select_from(cte).scalar_subquery() for cte in ctes))
