"""How long a key is remembered, and that many requests with it ask the database once."""

import asyncio

from sqlalchemy import event
from tests.support.store_rows import NOW

from runyard_api.tokens import token_hash
from runyard_gateway.auth import CACHE_SECONDS, KeyCache
from runyard_store.database import Database
from runyard_store.keys import add_key, key_id_of, revoke_key


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_revoked_key_stops_working_within_ten_seconds(db: Database) -> None:
    clock = Clock()
    cache = KeyCache(db, clock)
    await add_key(db, "ry_a", "alice", "laptop", NOW)
    assert await cache.user_of("ry_a") == "alice"
    await revoke_key(db, key_id_of(token_hash("ry_a")), NOW)
    clock.now = CACHE_SECONDS - 0.01
    assert await cache.user_of("ry_a") == "alice"
    clock.now = CACHE_SECONDS
    assert await cache.user_of("ry_a") is None
    assert CACHE_SECONDS <= 10


async def test_a_key_that_was_refused_works_as_soon_as_it_is_made(db: Database) -> None:
    cache = KeyCache(db, Clock())
    assert await cache.user_of("ry_new") is None
    await add_key(db, "ry_new", "alice", "laptop", NOW)
    assert await cache.user_of("ry_new") == "alice"


async def test_many_requests_with_one_key_cost_few_queries(db: Database) -> None:
    asked = 0

    def count(*_: object) -> None:
        nonlocal asked
        asked += 1

    await add_key(db, "ry_a", "alice", "laptop", NOW)
    event.listen(db._engine.sync_engine, "before_cursor_execute", count)
    cache = KeyCache(db, Clock())
    assert await asyncio.gather(*(cache.user_of("ry_a") for _ in range(200))) == ["alice"] * 200
    assert asked <= 8
