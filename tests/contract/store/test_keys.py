"""API keys in the database: made, listed, revoked; what the entry point in the gateway's pod answers."""

from uuid import uuid4

import orjson
import pytest
from tests.support.store_rows import NOW, later

from runyard_api.errors import AlreadyExists, Invalid, NotFound
from runyard_api.tokens import api_key, token_hash
from runyard_store import keys
from runyard_store.database import Database
from runyard_store.keys_command import parse, perform


def new_key() -> str:
    return api_key(uuid4().bytes * 2)


async def test_a_created_key_opens_its_user_and_is_listed_without_itself_or_its_hash(db: Database) -> None:
    key, user = new_key(), f"alice-{uuid4()}"
    made = await keys.create_key(db, token_hash(key), user, "laptop", NOW)
    assert await keys.user_of_key(db, key) == user
    assert await keys.list_keys(db, user) == [made]
    assert (made.key_id, made.revoked_at) == (token_hash(key)[:16], None)


async def test_a_revoked_key_opens_nothing_and_stays_listed_with_its_time(db: Database) -> None:
    key, user = new_key(), f"bob-{uuid4()}"
    made = await keys.create_key(db, token_hash(key), user, "ci", NOW)
    ended = await keys.revoke_key(db, made.key_id, later(5))
    assert await keys.user_of_key(db, key) is None
    assert ended.revoked_at == later(5)
    assert await keys.revoke_key(db, made.key_id, later(9)) == ended
    assert await keys.list_keys(db, user) == [ended]


async def test_a_revoked_key_does_not_come_back_when_it_is_added_again(db: Database) -> None:
    key = new_key()
    await keys.add_key(db, key, "default", "first", NOW)
    await keys.revoke_key(db, keys.key_id_of(token_hash(key)), later(1))
    await keys.add_key(db, key, "default", "first", later(2))
    assert await keys.user_of_key(db, key) is None


async def test_a_key_that_is_there_and_one_that_is_not(db: Database) -> None:
    key = new_key()
    await keys.create_key(db, token_hash(key), "alice", "a", NOW)
    with pytest.raises(AlreadyExists):
        await keys.create_key(db, token_hash(key), "mallory", "a", NOW)
    with pytest.raises(NotFound, match="no key with the id nope"):
        await keys.revoke_key(db, "nope", NOW)


@pytest.mark.parametrize(("user", "name"), [("", "n"), ("u" * 129, "n"), ("a\nb", "n"), (" a", "n"), ("a", "\x00")])
async def test_a_user_or_name_that_no_run_could_carry_is_refused(db: Database, user: str, name: str) -> None:
    with pytest.raises(Invalid, match="must be 1 to 128 printable characters"):
        await keys.create_key(db, token_hash(new_key()), user, name, NOW)


async def test_the_commands_answer_with_json_that_holds_neither_key_nor_hash(url: str) -> None:
    key, user = new_key(), f"carol-{uuid4()}"
    (made,) = await perform(url, ["create", f"--user={user}", "--name=x", f"--hash={token_hash(key)}"])
    (ended,) = await perform(url, ["revoke", "--", made["id"]])
    assert await perform(url, ["list", f"--user={user}"]) == [ended]
    assert list(ended) == ["id", "user", "name", "created_at", "revoked_at"]
    assert ended["revoked_at"] > ended["created_at"]
    assert token_hash(key) not in orjson.dumps(ended).decode()


@pytest.mark.parametrize("arguments", [[], ["drop"], ["create", "--user=a"], ["revoke"], ["list", "x"]])
def test_a_wrong_command_is_one_sentence(arguments: list[str]) -> None:
    with pytest.raises(Invalid):
        parse(arguments)


def test_what_is_no_hash_is_refused() -> None:
    with pytest.raises(Invalid, match="64 hex digits"):
        parse(["create", "--user=a", "--name=b", "--hash=ry_secret"])
