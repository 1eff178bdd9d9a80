"""The schema and its migration, private files, and databases that are away."""

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from langgraph.graph import START, StateGraph
from sqlalchemy import create_engine, text
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.store_rows import claimed, finish_of, stored_run

from runyard_api.errors import Invalid, Unavailable
from runyard_store.checkpoints import Checkpointers, open_checkpointers
from runyard_store.database import Database, open_database
from runyard_store.migrate import REVISION, migrate, require_schema
from runyard_store.runs import count_runs, get_run
from runyard_store.tables import metadata
from runyard_store.threads import get_thread
from runyard_store.urls import parse_url


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def ours(item: Any, name: str, kind: str, *_: Any) -> bool:
    """Whether a table, or what is in it, is one of ours rather than LangGraph's."""
    return (name if kind == "table" else item.table.name) in metadata.tables


async def test_the_migration_makes_the_tables_the_queries_expect(url: str) -> None:
    engine = create_engine(parse_url(url).sync_url)
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts={"include_object": ours}), metadata)
    engine.dispose()
    assert found == []


async def test_migrating_again_changes_nothing(url: str, db: Database) -> None:
    run = await stored_run(db)
    await asyncio.to_thread(migrate, url)
    await require_schema(db)
    assert await get_run(db, run.run_id) == run


@pytest.mark.postgres
async def test_two_migrations_at_once_both_succeed(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    await asyncio.gather(*(asyncio.to_thread(migrate, url) for _ in range(3)))
    database = await open_database(url)
    await require_schema(database)
    await database.close()


@pytest.mark.parametrize(("revision", "fits"), [("0000", False), (REVISION, True), ("9999", True)])
async def test_a_newer_schema_fits_and_an_older_one_does_not(url: str, db: Database, revision: str, fits: bool) -> None:
    async with db.single() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    expected = contextlib.nullcontext() if fits else pytest.raises(Unavailable, match=f"schema {revision}")
    with expected:
        await require_schema(db)


async def test_an_empty_database_is_refused_with_the_way_out(tmp_path: Path) -> None:
    database = await open_database(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(Unavailable, match="runyard-migrate"):
        await require_schema(database)
    await database.close()


async def test_files_of_sqlite_are_private(tmp_path: Path) -> None:
    path = tmp_path / "runyard.db"
    await asyncio.to_thread(migrate, f"sqlite:///{path}")
    database = await open_database(f"sqlite:///{path}")
    await stored_run(database)
    modes = modes_in(tmp_path)
    await database.close()
    assert set(modes.values()) == {0o600}


async def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await open_database(f"sqlite:///{tmp_path}/missing/runyard.db")


@pytest.mark.postgres
async def test_a_value_beyond_what_postgres_can_hold_is_invalid_and_not_worth_a_second_try(postgres_url: str) -> None:
    database = await open_database(postgres_url)
    with pytest.raises(Invalid, match="can't be stored: array size exceeds"):
        async with database.read() as connection:
            await connection.execute(text("SELECT array_fill(1, ARRAY[100000, 100000])"))
    await database.close()


class State(TypedDict):
    n: int


def one_step() -> StateGraph[State]:
    async def node(state: State) -> State:
        return {"n": 1}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph


@pytest.fixture
async def crashing() -> AsyncIterator[tuple[PostgresServer, Database, Checkpointers]]:
    """A server of its own, with open connections, that a test may stop and start."""
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(postgres_server())
        stack.callback(server.start)
        url = server.new_database()
        await asyncio.to_thread(migrate, url)
        database = await open_database(url, pool_size=3)
        stack.push_async_callback(database.close)
        savers = await open_checkpointers(url, pool_size=3, timeout_s=3)
        stack.push_async_callback(savers.close)
        yield server, database, savers


@pytest.mark.postgres
async def test_a_server_that_is_away_is_unavailable_and_its_return_needs_no_restart(
    crashing: tuple[PostgresServer, Database, Checkpointers],
) -> None:
    server, database, savers = crashing
    claim = await claimed(database, await stored_run(database))
    graph = one_step().compile(checkpointer=savers.saver(claim.run.thread_id, claim.epoch, lambda: None))
    config: Any = {"configurable": {"thread_id": claim.run.thread_id}}
    await graph.ainvoke({"n": 0}, config)

    server.stop()
    with pytest.raises(Unavailable):
        await get_run(database, claim.run.run_id)
    with pytest.raises(Unavailable):
        await stored_run(database)
    server.start()
    for _ in range(4):
        assert (await get_run(database, claim.run.run_id)).attempt == 1
        await stored_run(database)
    assert await graph.ainvoke({"n": 0}, config) == {"n": 1}
    server.stop()
    with pytest.raises(Unavailable):
        await graph.ainvoke({"n": 0}, config)


@pytest.mark.postgres
async def test_nobody_listening_is_unavailable_without_the_password() -> None:
    database = await open_database("postgresql://u:hunter2@127.0.0.1:1/none")
    with pytest.raises(Unavailable) as away:
        await get_run(database, str(uuid4()))
    assert "hunter2" not in str(away.value)
    await database.close()


async def test_a_closed_database_can_be_opened_again(url: str, db: Database) -> None:
    claim = await claimed(db, await stored_run(db))
    await db.close()
    again = await open_database(url)
    assert (await claimed(again, claim.run)).outcome == "mine"
    assert finish_of(claim).epoch == claim.epoch
    await again.close()


async def test_cancelled_operations_leave_nothing_half_done_or_locked(url: str, db: Database) -> None:
    savers = await open_checkpointers(url)
    claim = await claimed(db, await stored_run(db))
    saver = savers.saver(claim.run.thread_id, claim.epoch, lambda: None)
    config: Any = {"configurable": {"thread_id": claim.run.thread_id, "checkpoint_ns": "", "checkpoint_id": "c"}}
    for turns in range(30):
        tasks = [
            asyncio.ensure_future(stored_run(db, claim.run.thread_id)),
            asyncio.ensure_future(saver.aput_writes(config, [("channel", turns)], f"task-{turns}")),
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await saver.aput_writes(config, [("channel", "after")], "task-after")
    await stored_run(db, claim.run.thread_id)
    thread = await get_thread(db, claim.run.thread_id)
    assert thread.unfinished == thread.run_seq == await count_runs(db, claim.run.thread_id)
    await savers.close()
