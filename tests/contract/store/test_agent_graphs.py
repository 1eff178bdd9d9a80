"""What templates of Agents serve, kept in the database."""

from datetime import UTC, datetime, timedelta

from runyard_store.agent_graphs import KEPT, forget_graphs, keep_graphs, read_graphs
from runyard_store.database import Database

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


async def test_what_a_template_serves_is_what_was_told_last(db: Database) -> None:
    assert await read_graphs(db, "hello", "aaaaaaaa") is None
    await keep_graphs(db, "hello", "aaaaaaaa", {"chat": {"graph_id": "chat", "input_schema": {"type": "object"}}}, NOW)
    await keep_graphs(db, "hello", "aaaaaaaa", {"chat": None, "other": {"graph_id": "other"}}, NOW)
    assert await read_graphs(db, "hello", "aaaaaaaa") == {"chat": None, "other": {"graph_id": "other"}}
    assert await read_graphs(db, "hello", "bbbbbbbb") is None
    assert await read_graphs(db, "another", "aaaaaaaa") is None


async def test_older_templates_stay_for_a_while_for_the_agent_may_be_rolled_back(db: Database) -> None:
    await keep_graphs(db, "hello", "11111111", {"chat": None}, NOW - KEPT - timedelta(seconds=1))
    await keep_graphs(db, "hello", "22222222", {"chat": None}, NOW - KEPT + timedelta(seconds=1))
    await keep_graphs(db, "another", "11111111", {"chat": None}, NOW - 2 * KEPT)
    await keep_graphs(db, "hello", "33333333", {"chat": None}, NOW)
    assert await read_graphs(db, "hello", "11111111") is None
    assert await read_graphs(db, "hello", "22222222") == {"chat": None}
    assert await read_graphs(db, "another", "11111111") == {"chat": None}


async def test_of_a_deleted_agent_nothing_is_kept(db: Database) -> None:
    for template in ("11111111", "22222222"):
        await keep_graphs(db, "hello", template, {"chat": None}, NOW)
    await keep_graphs(db, "another", "11111111", {"chat": None}, NOW)
    await forget_graphs(db, "hello")
    assert await read_graphs(db, "hello", "22222222") is None
    assert await read_graphs(db, "another", "11111111") == {"chat": None}
