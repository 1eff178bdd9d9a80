"""API keys: only their SHA-256 is stored. The gateway looks them up; the chart's job and the CLI add them."""

from datetime import datetime

from sqlalchemy import select

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
    raise NotImplementedError
