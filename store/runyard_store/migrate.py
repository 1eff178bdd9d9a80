"""Bringing a database to this version's schema. Run by the chart's migration Job and at an embedded start."""

from runyard_store.database import Database

REVISION = "0001"
"""The newest revision in migrations/versions: what services of this version need."""


def migrate(url: str) -> None:
    """Creates or upgrades our tables, then LangGraph's own. Needs the runtime extra. Safe to run twice and at once.

    Raises ValueError, Unavailable.
    """
    raise NotImplementedError


async def require_schema(db: Database) -> None:
    """Raises Unavailable unless the database has this version's schema."""
    raise NotImplementedError


def main() -> None:
    """`runyard-migrate`: reads RUNYARD_DATABASE_URL; ends with 1 and one sentence when it can't."""
    raise NotImplementedError
