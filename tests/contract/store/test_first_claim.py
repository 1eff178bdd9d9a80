"""The claim in one statement: that it is taken where it may be, and gives way where somebody came in between."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import text
from tests.support.store_rows import NOW_MS, claimed, finish_of, new_run, stored_run

from runyard_api.payload import RunPayload
from runyard_store.database import Database, open_database
from runyard_store.finish import finish_run
from runyard_store.first_claim import FirstClaim, claim_first
from runyard_store.leases import check
from runyard_store.pre_run import PreRun, capture
from runyard_store.runs import RunRow, create_run, get_run

pytestmark = pytest.mark.postgres


@pytest.fixture
async def pg(postgres_url: str) -> AsyncIterator[Database]:
    database = await open_database(postgres_url)
    yield database
    await database.close()


async def first(db: Database, run: RunRow) -> FirstClaim | None:
    return await claim_first(db, run_id=run.run_id, holder="pod", now_ms=NOW_MS)


async def test_a_new_run_of_a_new_thread_is_claimed(pg: Database) -> None:
    run = await stored_run(pg)
    claim = await first(pg, run)
    assert claim is not None
    assert claim.pre_run == PreRun()
    assert await check(pg, run.thread_id, claim.epoch)
    assert claim.run == await get_run(pg, run.run_id)


async def test_the_pre_run_point_is_the_one_that_is_read_step_by_step(pg: Database) -> None:
    done = await claimed(pg, await stored_run(pg))
    thread = done.run.thread_id
    async with pg.begin() as connection:
        for number in (1, 2):
            await connection.execute(_CHECKPOINT, {"thread": thread, "id": f"c{number}"})
            write = {"thread": thread, "id": f"c{number}", "blob": bytes(range(256))}
            await connection.execute(_WRITE, write)
    await finish_run(pg, finish_of(done))
    async with pg.read() as connection:
        expected = await capture("postgresql", connection, thread, None)
    claim = await first(pg, await stored_run(pg, thread))
    assert claim is not None
    assert claim.pre_run == expected
    assert [write[-1] for write in expected.writes] == [bytes(range(256))]


async def test_a_run_that_may_fork_off_is_left_to_the_way_that_reads_its_payload(pg: Database) -> None:
    forking = replace(new_run(), payload=RunPayload(input={}, config={"configurable": {"checkpoint_id": "c1"}}))
    run = await create_run(pg, forking, (await stored_run(pg)).created_at)
    assert await first(pg, run) is None
    assert (await claimed(pg, run)).outcome == "started"


async def test_a_writer_that_came_and_went_while_the_claim_waited_makes_it_give_way(pg: Database) -> None:
    run = await stored_run(pg)
    async with pg.begin() as connection:
        lease = "UPDATE thread_leases SET epoch = epoch + 1 WHERE thread_id = :thread"
        await connection.execute(text(lease), {"thread": run.thread_id})
        await connection.execute(_CHECKPOINT, {"thread": run.thread_id, "id": "c1"})
        waiting = asyncio.create_task(first(pg, run))
        await _until_somebody_waits_for_a_lock(pg)
    assert await waiting is None
    assert (await get_run(pg, run.run_id)).attempt == 0
    assert (await claimed(pg, run)).pre_run.cut == "c1"


async def _until_somebody_waits_for_a_lock(db: Database) -> None:
    query = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with asyncio.timeout(10), db.read() as connection:
        while not (await connection.execute(query)).scalar_one():
            pass


_CHECKPOINT = text(
    "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata)"
    " VALUES (:thread, '', :id, '{}', '{}')"
)
_WRITE = text(
    "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob)"
    " VALUES (:thread, '', :id, 'task', 0, 'channel', 'bytes', :blob)"
)
