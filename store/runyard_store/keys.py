"""API keys: only their SHA-256 is stored. The gateway looks them up; the chart's job and the CLI add them."""

from datetime import datetime
from uuid import uuid4

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from runyard_api.tokens import token_hash
from runyard_store.database import Database
from runyard_store.tables import api_keys


async def user_of_key(db: Database, key: str) -> str | None:
    """The user a key belongs to, or None. Raises Unavailable."""
    query = select(api_keys.c.user_id).where(api_keys.c.key_hash == token_hash(key))
    async with db.read() as connection:
        return (await connection.execute(query)).scalar_one_or_none()


async def add_key(db: Database, key: str, user_id: str, name: str, now: datetime) -> None:
    """Stores a key's hash for a user; a key that is there already stays as it is. Raises Unavailable."""
    row = {"key_id": str(uuid4()), "user_id": user_id, "key_hash": token_hash(key), "created_at": now, "name": name}
    add = (postgresql.insert if db.kind == "postgresql" else sqlite.insert)(api_keys)
    async with db.single() as connection:
        await connection.execute(add.on_conflict_do_nothing(index_elements=["key_hash"]), row)
