"""Finding threads by what they are, a page at a time, with totals that are true."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from tests.support.postgres import PostgresServer
from tests.support.store_rows import NOW, claimed, finish_of, later, stored_run

from runyard_api.errors import Invalid
from runyard_api.states import RunState, ThreadState
from runyard_store.database import Database, open_database
from runyard_store.finish import finish_run
from runyard_store.migrate import migrate
from runyard_store.rows import ThreadRow
from runyard_store.runs import count_runs, finish_unheld, list_runs
from runyard_store.thread_search import SortBy, ThreadFilter, ThreadPage, count_threads, search_threads
from runyard_store.threads import create_thread, get_thread


@pytest.fixture
def user() -> str:
    """The Postgres database is shared by all tests; each has a user of its own."""
    return f"user-{uuid4()}"


async def made(db: Database, user: str, seconds: float = 0, **metadata: Any) -> ThreadRow:
    return await create_thread(db, thread_id=str(uuid4()), user_id=user, metadata=metadata, now=later(seconds))


async def finished(db: Database, user: str, values: Any, **changes: Any) -> str:
    """The thread of a run that ended with these values."""
    run = await stored_run(db, user_id=user)
    end = finish_of(await claimed(db, run), values=values)
    await finish_run(db, replace(end, **changes))
    return run.thread_id


FIRST = ThreadPage()


async def found(db: Database, user: str, *, page: ThreadPage = FIRST, **wanted: Any) -> list[str]:
    return [row.thread_id for row in await search_threads(db, ThreadFilter(user_id=user, **wanted), page)]


async def test_pages_newest_first_and_the_total_of_all(db: Database, user: str) -> None:
    ids = [(await made(db, user, n)).thread_id for n in range(5)]
    await made(db, f"not-{user}")
    pages = [await found(db, user, page=ThreadPage(limit=2, offset=n)) for n in (0, 2, 4, 6)]
    assert pages == [ids[:2:-1], ids[2:0:-1], ids[:1], []]
    assert await count_threads(db, ThreadFilter(user_id=user)) == 5


METADATA: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the same": ({"a": 1}, {"a": 1}, True),
    "less": ({"a": 1, "b": 2}, {"b": 2}, True),
    "more": ({"a": 1}, {"a": 1, "b": 2}, False),
    "another value": ({"a": 1}, {"a": 2}, False),
    "deeper": ({"a": {"b": {"c": 1}, "d": 2}}, {"a": {"b": {"c": 1}}}, True),
    "deeper and different": ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}, False),
    "items of a list": ({"tags": ["x", "y", "z"]}, {"tags": ["z", "x"]}, True),
    "an item that isn't there": ({"tags": ["x"]}, {"tags": ["q"]}, False),
    "an object in a list": ({"l": [{"a": 1, "b": 2}, 3]}, {"l": [{"b": 2}]}, True),
    "an empty object": ({"a": {"b": 1}}, {"a": {}}, True),
    "null": ({"a": None}, {"a": None}, True),
    "null for what is absent": ({}, {"a": None}, False),
    "true is no number": ({"a": True}, {"a": 1}, False),
    "a number is a number": ({"a": 1}, {"a": 1.0}, True),
    "text with quotes and percent": ({"a": 'it\'s 100% "so" ; --'}, {"a": 'it\'s 100% "so" ; --'}, True),
    "a value is no key": ({"a": "b"}, {"b": "a"}, False),
}


@pytest.mark.parametrize("case", METADATA, ids=str)
async def test_metadata_and_values_are_looked_into_the_same_way(db: Database, user: str, case: str) -> None:
    has, wanted, matches = METADATA[case]
    thread = await made(db, user, **has)
    assert await found(db, user, metadata=wanted) == ([thread.thread_id] if matches else [])
    ended = await finished(db, user, has)
    assert await found(db, user, values=wanted) == ([ended] if matches else [])


async def test_values_of_threads_that_have_none_or_no_readable_ones_dont_match(db: Database, user: str) -> None:
    await made(db, user)
    odd = await finished(db, user, b'{"a": "\\u0000", "b": 1}')
    mine = await finished(db, user, {"b": 1})
    expected = {odd, mine} if db.kind == "sqlite" else {mine}
    assert set(await found(db, user, values={"b": 1})) == expected


async def test_a_status_ids_and_all_filters_together(db: Database, user: str) -> None:
    idle = await made(db, user, 1, kind="a")
    busy = (await stored_run(db, user_id=user)).thread_id
    failed = await finished(db, user, {}, thread_status=ThreadState.ERROR)
    assert await found(db, user, status=ThreadState.BUSY) == [busy]
    assert await found(db, user, status=ThreadState.ERROR) == [failed]
    assert set(await found(db, user, ids=[idle.thread_id, busy, str(uuid4())])) == {idle.thread_id, busy}
    assert await found(db, user, ids=[]) == []
    wanted = ThreadFilter(user_id=user, ids=[idle.thread_id, busy], metadata={"kind": "a"}, status=ThreadState.IDLE)
    assert await count_threads(db, wanted) == 1
    assert await found(db, f"not-{user}", ids=[idle.thread_id]) == []


@pytest.mark.parametrize("sort_by", ["thread_id", "status", "created_at", "updated_at", "state_updated_at"])
async def test_orders_are_total_so_pages_never_overlap(db: Database, user: str, sort_by: SortBy) -> None:
    for _ in range(3):
        await made(db, user)
    await finished(db, user, {"a": 1})
    await stored_run(db, user_id=user)
    for descending in (True, False):
        pages = [
            await found(db, user, page=ThreadPage(limit=2, offset=n, sort_by=sort_by, descending=descending))
            for n in (0, 2, 4)
        ]
        whole = await found(db, user, page=ThreadPage(sort_by=sort_by, descending=descending))
        assert [thread_id for one in pages for thread_id in one] == whole
        assert len(set(whole)) == 5


async def test_threads_whose_state_was_never_written_come_last_in_its_order(db: Database, user: str) -> None:
    await made(db, user)
    written = await finished(db, user, {"a": 1})
    for descending in (True, False):
        page = ThreadPage(sort_by="state_updated_at", descending=descending)
        assert (await found(db, user, page=page))[0] == written


async def test_rows_are_whole_but_for_the_head(db: Database, user: str) -> None:
    thread_id = await finished(db, user, {"a": 1})
    [row] = await search_threads(db, ThreadFilter(user_id=user), ThreadPage())
    assert row == replace(await get_thread(db, thread_id), head=None)
    [row] = await search_threads(db, ThreadFilter(user_id=user), ThreadPage(with_values=False))
    assert row.values is None
    lost = await stored_run(db, thread_id, user_id=user)
    await claimed(db, lost)
    await finish_unheld(db, lost.run_id, RunState.ERROR, {"error": "E", "message": "m"}, NOW)
    [row] = await search_threads(db, ThreadFilter(user_id=user), ThreadPage())
    assert row.head_unknown


THREADS = """
INSERT INTO threads (thread_id, user_id, created_at, updated_at, metadata, config, status, interrupts, run_seq,
  unfinished)
SELECT gen_random_uuid()::text, :user, now() - n * interval '1 s', now() - n * interval '1 s', '{"kind": "chat"}', '{}',
  'idle', '{}', 0, 0 FROM generate_series(1, 10000) n"""
RUNS = """
INSERT INTO runs (run_id, thread_id, user_id, assistant_id, graph_id, agent_name, sequence, status, created_at,
  updated_at, attempt, failures, event_base, metadata, payload, multitask_strategy, on_disconnect, temporary)
SELECT gen_random_uuid()::text, :thread, :user, 'a', 'g', 'n', n, CASE n % 1000 WHEN 0 THEN 'error' ELSE 'success' END,
  now(), now(), 1, 0, 1, '{}', '{}', 'enqueue', 'continue', false FROM generate_series(1, 10000) n"""


@pytest.mark.postgres
async def test_with_ten_thousand_threads_and_runs_pages_come_by_index_and_totals_are_true(
    postgres: PostgresServer, user: str
) -> None:
    url = postgres.new_database()
    migrate(url)
    db = await open_database(url)
    async with db.begin() as connection:
        await connection.execute(text(THREADS), {"user": user})
        thread = (await connection.execute(text("SELECT min(thread_id) FROM threads"))).scalar_one()
        await connection.execute(text(RUNS), {"user": user, "thread": thread})
    async with db.single() as connection:
        await connection.execute(text("ANALYZE"))
    assert await count_threads(db, ThreadFilter(user_id=user, metadata={"kind": "chat"})) == 10_000
    assert len(await found(db, user, page=ThreadPage(limit=5, offset=9_997))) == 3
    assert await count_runs(db, thread, user) == 10_000
    assert await count_runs(db, thread, user, RunState.ERROR) == 10
    newest = await list_runs(db, thread, user, status=RunState.ERROR)
    assert [run.sequence for run in newest] == list(range(10_000, 0, -1000))
    order = "ORDER BY {by} DESC, thread_id DESC LIMIT 10"
    plans = {
        "threads_by_creation": f"FROM threads WHERE user_id = :user {order.format(by='created_at')}",
        "threads_by_user": f"FROM threads WHERE user_id = :user {order.format(by='updated_at')}",
        "runs_thread_sequence": "FROM runs WHERE thread_id = :thread ORDER BY sequence DESC LIMIT 10",
    }
    async with db.read() as connection:
        for index, query in plans.items():
            asked = {"user": user, "thread": thread}
            plan = (await connection.execute(text(f"EXPLAIN SELECT * {query}"), asked)).scalars().all()
            assert any(index in line for line in plan), plan
    await db.close()


async def test_a_page_larger_than_can_be_answered_is_refused_before_it_is_read(db: Database, user: str) -> None:
    for _ in range(3):
        await made(db, user, big="x" * (12 * 2**20))
    assert len(await found(db, user, page=ThreadPage(limit=2))) == 2
    with pytest.raises(Invalid, match="limit: the threads of this page hold 37"):
        await found(db, user)
    with pytest.raises(Invalid, match="ask for fewer"):
        await found(db, user, page=ThreadPage(limit=1, copies=4))
    assert await count_threads(db, ThreadFilter(user_id=user)) == 3
