"""API keys: only their SHA-256 is stored, and never shown. The gateway looks them up; the chart's Job adds the first;
`runyard keys` lists, adds and revokes them (keys_command.py)."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.dialects import postgresql, sqlite

from runyard_api.errors import AlreadyExists, Invalid, NotFound
from runyard_api.tokens import token_hash
from runyard_store.database import Database
from runyard_store.tables import api_keys

LONGEST_TEXT = 128
"""Characters of a user id (the Run resource allows no more) and of a key's name."""
_SHOWN = (api_keys.c.key_id, api_keys.c.user_id, api_keys.c.name, api_keys.c.created_at, api_keys.c.revoked_at)


@dataclass(frozen=True)
class KeyRow:
    """A key as it is listed. `key_id` is the beginning of its hash, so whoever finds a key can tell which it is."""

    key_id: str
    user_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None


async def user_of_key(db: Database, key: str) -> str | None:
    """The user of a key that is there and not revoked, or None. Raises Unavailable."""
    query = select(api_keys.c.user_id).where(api_keys.c.key_hash == token_hash(key), api_keys.c.revoked_at.is_(None))
    async with db.read() as connection:
        return (await connection.execute(query)).scalar_one_or_none()


async def add_key(db: Database, key: str, user_id: str, name: str, now: datetime) -> None:
    """Stores a key's hash for a user; one that is there already, revoked or not, stays as it is. Raises Unavailable."""
    await _insert(db, token_hash(key), user_id, name, now)


async def create_key(db: Database, key_hash: str, user_id: str, name: str, now: datetime) -> KeyRow:
    """Stores a new key's hash. Raises AlreadyExists, Invalid for a user or name that can't be, Unavailable."""
    for field, text in (("user", user_id), ("name", name)):
        if not 1 <= len(text) <= LONGEST_TEXT or not text.isprintable() or text != text.strip():
            raise Invalid(f"{field}: must be 1 to {LONGEST_TEXT} printable characters, without spaces around them")
    if await _insert(db, key_hash, user_id, name, now):
        raise AlreadyExists("a key with this hash is stored already")
    return KeyRow(key_id_of(key_hash), user_id, name, now, None)


async def list_keys(db: Database, user_id: str | None = None) -> list[KeyRow]:
    """All keys, or a user's, revoked ones included; oldest first. Raises Unavailable."""
    query = select(*_SHOWN).order_by(api_keys.c.created_at, api_keys.c.key_id)
    if user_id is not None:
        query = query.where(api_keys.c.user_id == user_id)
    async with db.read() as connection:
        return [KeyRow(*tuple(found)) for found in await connection.execute(query)]


async def revoke_key(db: Database, key_id: str, now: datetime) -> KeyRow:
    """Ends a key; one that was revoked before keeps that time. Raises NotFound, Unavailable."""
    end = update(api_keys).where(api_keys.c.key_id == key_id, api_keys.c.revoked_at.is_(None)).values(revoked_at=now)
    async with db.single() as connection:
        await connection.execute(end)
    async with db.read() as connection:
        found = (await connection.execute(select(*_SHOWN).where(api_keys.c.key_id == key_id))).one_or_none()
    if found is None:
        raise NotFound(f"there is no key with the id {key_id}")
    return KeyRow(*tuple(found))


def key_id_of(key_hash: str) -> str:
    """The id of a key with this hash: 16 of its 64 hex digits, which tell nothing about the key."""
    return key_hash[:16]


async def _insert(db: Database, key_hash: str, user_id: str, name: str, now: datetime) -> bool:
    """True when the hash was there already."""
    values = {"user_id": user_id, "key_hash": key_hash, "created_at": now, "name": name}
    row = {"key_id": key_id_of(key_hash), **values}
    add = (postgresql.insert if db.kind == "postgresql" else sqlite.insert)(api_keys)
    add = add.on_conflict_do_nothing(index_elements=["key_hash"])
    async with db.single() as connection:
        return (await connection.execute(add.returning(api_keys.c.key_id), row)).first() is None
