"""The graphs that each pod template of an Agent serves, with their schemas. The operator writes what pods tell; the
gateway reads it, so that it needs no pod for it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from runyard_store.database import Database
from runyard_store.tables import agent_graphs

KEPT = timedelta(days=30)
"""How long a template that isn't in use any more is kept: its Agent may be rolled back."""


async def keep_graphs(
    db: Database, agent_name: str, template_hash: str, graphs: Mapping[str, Any], now: datetime
) -> None:
    """Stores what a template serves, graph id → schemas (JSON, or None where they couldn't be had), in place of what
    was known of it; forgets templates of the Agent that are out of use for long. Raises Unavailable."""
    insert = (postgresql if db.kind == "postgresql" else sqlite).insert(agent_graphs)
    values = {"graphs": dict(graphs), "updated_at": now}
    row = insert.values(agent_name=agent_name, template_hash=template_hash, **values)
    old = delete(agent_graphs).where(
        agent_graphs.c.agent_name == agent_name,
        agent_graphs.c.template_hash != template_hash,
        agent_graphs.c.updated_at < now - KEPT,
    )
    async with db.begin() as connection:
        await connection.execute(row.on_conflict_do_update(index_elements=["agent_name", "template_hash"], set_=values))
        await connection.execute(old)


async def read_graphs(db: Database, agent_name: str, template_hash: str) -> dict[str, Any] | None:
    """What the template serves, graph id → schemas or None; None: nobody has told yet. Raises Unavailable."""
    query = select(agent_graphs.c.graphs).where(
        agent_graphs.c.agent_name == agent_name, agent_graphs.c.template_hash == template_hash
    )
    async with db.read() as connection:
        graphs: dict[str, Any] | None = (await connection.execute(query)).scalar_one_or_none()
    return graphs


async def forget_graphs(db: Database, agent_name: str) -> None:
    """Forgets every template of an Agent. Raises Unavailable."""
    async with db.single() as connection:
        await connection.execute(delete(agent_graphs).where(agent_graphs.c.agent_name == agent_name))
