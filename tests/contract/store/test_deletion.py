"""Deleting threads with everything of theirs, and which threads of stateless runs are due."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from sqlalchemy import text
from tests.support.store_rows import NOW, USER, claimed, events, finish_of, later, new_run, stored_run

from runyard_api.errors import Conflict, Fenced, Held, NotFound
from runyard_api.states import RunState, ThreadState
from runyard_store import event_log
from runyard_store.checkpoints import Checkpointers, open_checkpointers
from runyard_store.database import Database
from runyard_store.deletion import delete_finished_run, delete_idle_thread, delete_thread, expired_threads
from runyard_store.finish import finish_run
from runyard_store.leases import Claim, claim_thread
from runyard_store.pre_run import PreRun
from runyard_store.runs import RunRow, create_run, finish_unheld, get_run
from runyard_store.threads import ThreadUpdate, get_thread, record_state


@pytest.fixture
async def savers(url: str, db: Database) -> AsyncIterator[Checkpointers]:
    opened = await open_checkpointers(url)
    yield opened
    await opened.close()


async def write_checkpoint(savers: Checkpointers, claim: Claim) -> None:
    saver = savers.saver(claim.run.thread_id, claim.epoch, lambda: None)
    config: Any = {"configurable": {"thread_id": claim.run.thread_id, "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"log": ["a list, which gets a blob of its own"]}
    checkpoint["channel_versions"] = {"log": "1"}
    config = await saver.aput(config, checkpoint, {"step": 0}, {"log": "1"})
    await saver.aput_writes(config, [("log", ["pending"])], str(uuid4()))


async def finished_thread(db: Database, savers: Checkpointers) -> Claim:
    """A thread that has something in every table."""
    claim = await claimed(db, await stored_run(db))
    await write_checkpoint(savers, claim)
    await event_log.append(db, claim.run.run_id, claim.run.thread_id, claim.epoch, events(claim, 1, 2))
    await finish_run(db, finish_of(claim))
    return claim


async def contents(db: Database, claim: Claim) -> dict[str, int]:
    """How many rows each table has of the claim's thread."""
    langgraph = ("checkpoint_blobs", "checkpoint_writes") if db.kind == "postgresql" else ("writes",)
    found = {}
    async with db.read() as connection:
        for name in ("threads", "thread_leases", "runs", "event_batches", "checkpoints", *langgraph):
            mine = "run_id = :run" if name == "event_batches" else "thread_id = :thread"
            query = text(f"SELECT count(*) FROM {name} WHERE {mine}")
            bound = {"run": claim.run.run_id} if name == "event_batches" else {"thread": claim.run.thread_id}
            found[name] = (await connection.execute(query, bound)).scalar_one()
    return found


async def test_a_thread_goes_with_everything_of_it_and_nothing_else(db: Database, savers: Checkpointers) -> None:
    gone, stays = await finished_thread(db, savers), await finished_thread(db, savers)
    before = await contents(db, stays)
    assert all(before.values())
    assert await contents(db, gone) == before
    await delete_idle_thread(db, gone.run.thread_id)
    assert set((await contents(db, gone)).values()) == {0}
    assert await contents(db, stays) == before
    with pytest.raises(NotFound):
        await delete_idle_thread(db, gone.run.thread_id)


async def test_nobody_writes_to_a_deleted_thread(db: Database, savers: Checkpointers) -> None:
    claim = await finished_thread(db, savers)
    run_id, thread_id = claim.run.run_id, claim.run.thread_id
    epoch = await claim_thread(db, thread_id, "an update of the state", 0)
    await delete_idle_thread(db, thread_id)
    with pytest.raises(Fenced):
        await write_checkpoint(savers, claim)
    with pytest.raises(Fenced):
        await event_log.append(db, run_id, thread_id, claim.epoch, events(claim, 3))
    with pytest.raises(Fenced):
        await finish_run(db, finish_of(claim))
    with pytest.raises(Fenced):
        await record_state(db, thread_id, epoch, ThreadUpdate({}, {}, None, ThreadState.IDLE, NOW))
    with pytest.raises(NotFound):
        await claimed(db, claim.run, attempt=2)
    assert set((await contents(db, claim)).values()) == {0}


async def test_a_thread_made_again_is_closed_to_attempts_of_the_old_one(db: Database, savers: Checkpointers) -> None:
    old = await finished_thread(db, savers)
    for _ in range(5):
        await delete_idle_thread(db, old.run.thread_id)
        new = await claimed(db, await stored_run(db, old.run.thread_id))
        assert new.epoch != old.epoch
        with pytest.raises(Fenced):
            await write_checkpoint(savers, old)
        with pytest.raises(Fenced):
            await event_log.append(db, new.run.run_id, old.run.thread_id, old.epoch, events(old, 3))
        with pytest.raises(Fenced):
            await finish_run(db, finish_of(old))
        await finish_run(db, finish_of(new))


async def test_a_thread_with_an_unfinished_run_stays(db: Database, savers: Checkpointers) -> None:
    claim = await finished_thread(db, savers)
    waiting = await stored_run(db, claim.run.thread_id)
    with pytest.raises(Held):
        await delete_idle_thread(db, claim.run.thread_id)
    assert all((await contents(db, claim)).values())
    await finish_unheld(db, waiting.run_id, RunState.INTERRUPTED, None, NOW)
    await delete_idle_thread(db, claim.run.thread_id)


async def test_deleting_at_once_with_others_who_delete_or_make_a_run(db: Database, savers: Checkpointers) -> None:
    for _ in range(10):
        claim = await finished_thread(db, savers)
        again = new_run(claim.run.thread_id, if_not_exists="reject")
        deletions = [delete_idle_thread(db, claim.run.thread_id) for _ in range(3)]
        *deleted, made = await asyncio.gather(*deletions, create_run(db, again, NOW), return_exceptions=True)
        if isinstance(made, BaseException):
            assert isinstance(made, NotFound)
            assert [type(outcome) for outcome in deleted if outcome] == [NotFound, NotFound]
            assert set((await contents(db, claim)).values()) == {0}
        else:
            assert all(isinstance(outcome, Held) for outcome in deleted)
            assert (await get_thread(db, claim.run.thread_id)).unfinished == 1
            assert await get_run(db, claim.run.run_id)


async def test_a_thread_can_go_with_its_unfinished_runs(db: Database, savers: Checkpointers) -> None:
    done = await finished_thread(db, savers)
    thread_id = done.run.thread_id
    at_work = await claimed(db, await stored_run(db, thread_id))
    waiting = await stored_run(db, thread_id)
    with pytest.raises(NotFound):
        await delete_thread(db, thread_id, "somebody else")
    removed = await delete_thread(db, thread_id, USER)
    assert {(run.run_id, run.unfinished) for run in removed} == {
        (done.run.run_id, False),
        (at_work.run.run_id, True),
        (waiting.run_id, True),
    }
    assert set((await contents(db, done)).values()) == {0}
    with pytest.raises(Fenced):
        await write_checkpoint(savers, at_work)
    with pytest.raises(Fenced):
        await finish_run(db, finish_of(at_work))
    with pytest.raises(NotFound):
        await claimed(db, waiting)
    assert set((await contents(db, at_work)).values()) == {0}


async def test_deleting_while_attempts_begin_write_and_end(db: Database, savers: Checkpointers) -> None:
    async def attempt(run: RunRow) -> None:
        claim = await claimed(db, run)
        await write_checkpoint(savers, claim)
        await event_log.append(db, run.run_id, run.thread_id, claim.epoch, events(claim, 1))
        await finish_run(db, finish_of(claim))

    for delay in range(8):
        run = await stored_run(db)
        work = asyncio.create_task(attempt(run))
        for _ in range(delay * 3):
            await asyncio.sleep(0)
        await delete_thread(db, run.thread_id, USER)
        [outcome] = await asyncio.gather(work, return_exceptions=True)
        assert outcome is None or isinstance(outcome, Fenced | NotFound)
        gone = Claim("started", run, 0, PreRun(), resume=False, head_ms=None)
        assert set((await contents(db, gone)).values()) == {0}


async def test_a_finished_run_goes_with_its_events_and_leaves_the_threads_state(
    db: Database, savers: Checkpointers
) -> None:
    claim = await finished_thread(db, savers)
    run = claim.run
    before = await get_thread(db, run.thread_id)
    for thread_id, user in ((str(uuid4()), USER), (run.thread_id, "somebody else")):
        with pytest.raises(NotFound):
            await delete_finished_run(db, run.run_id, thread_id, user)
    await delete_finished_run(db, run.run_id, run.thread_id, USER)
    left = await contents(db, claim)
    assert (left.pop("runs"), left.pop("event_batches")) == (0, 0)
    assert all(left.values())
    assert await get_thread(db, run.thread_id) == before
    with pytest.raises(NotFound):
        await delete_finished_run(db, run.run_id, run.thread_id, USER)


async def test_an_unfinished_run_is_to_be_cancelled_first(db: Database) -> None:
    run = await stored_run(db)
    with pytest.raises(Conflict, match="pending: cancel it first"):
        await delete_finished_run(db, run.run_id, run.thread_id, USER)
    await claimed(db, run)
    with pytest.raises(Conflict, match="running: cancel it first"):
        await delete_finished_run(db, run.run_id, run.thread_id, USER)
    assert await get_run(db, run.run_id)


async def ended(db: Database, seconds: float, thread_id: str | None = None, *, temporary: bool = True) -> str:
    """The thread of a run that ended so long after NOW."""
    run = await stored_run(db, thread_id, temporary=temporary)
    await finish_unheld(db, run.run_id, RunState.SUCCESS, None, later(seconds))
    return run.thread_id


async def test_threads_of_stateless_runs_are_due_once_all_their_runs_have_ended_for_long_enough(db: Database) -> None:
    second, first = await ended(db, 2), await ended(db, 1)
    young, kept = await ended(db, 100), await ended(db, 1, temporary=False)
    unfinished = (await stored_run(db, temporary=True)).thread_id
    used_again, in_use = await ended(db, 1), await ended(db, 1)
    await ended(db, 100, used_again, temporary=False)
    await stored_run(db, in_use)
    mine = {first, second, young, kept, unfinished, used_again, in_use}

    due = [thread for thread in await expired_threads(db, later(50), 10_000) if thread in mine]
    assert due == [first, second]
    assert len(await expired_threads(db, later(50), 1)) == 1
    due = [thread for thread in await expired_threads(db, later(200), 10_000) if thread in mine]
    assert sorted(due) == sorted([first, second, young, used_again])
