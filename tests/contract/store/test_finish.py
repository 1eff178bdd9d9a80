"""The end of a run and the event log."""

from typing import Any

import pytest
from tests.support.store_rows import claimed, events, finish_of, later, stored_run

from runyard_api.errors import Fenced
from runyard_api.events import EventId
from runyard_api.states import RunState, ThreadState
from runyard_store import event_log
from runyard_store.database import Database
from runyard_store.finish import finish_run
from runyard_store.runs import get_run
from runyard_store.threads import get_thread


async def test_the_end_writes_row_thread_and_last_events_at_once(db: Database) -> None:
    claim = await claimed(db, await stored_run(db))
    assert await finish_run(db, finish_of(claim))
    run = await get_run(db, claim.run.run_id)
    assert (run.status, run.result, run.error, run.ended_at) == (RunState.SUCCESS, {"answer": 42}, None, later(2))
    thread = await get_thread(db, run.thread_id)
    assert (thread.status, thread.values, thread.unfinished) == (ThreadState.IDLE, {"answer": 42}, 0)
    assert (thread.head, thread.state_updated_at) == ({"values": {"answer": 42}, "next": []}, later(2))
    assert await event_log.read(db, run.run_id) == events(claim, 999, mode="end")


async def test_repeating_the_end_changes_nothing(db: Database) -> None:
    claim = await claimed(db, await stored_run(db))
    assert await finish_run(db, finish_of(claim))
    assert not await finish_run(db, finish_of(claim, state=RunState.ERROR, error={"error": "E", "message": "m"}))
    assert (await get_run(db, claim.run.run_id)).status is RunState.SUCCESS
    assert (await get_thread(db, claim.run.thread_id)).unfinished == 0


async def test_the_end_of_a_stale_attempt_is_fenced_and_writes_nothing(db: Database) -> None:
    run = await stored_run(db)
    stale = await claimed(db, run)
    await claimed(db, run, attempt=2, holder="pod-b")
    with pytest.raises(Fenced):
        await finish_run(db, finish_of(stale))
    thread = await get_thread(db, run.thread_id)
    assert (thread.values, thread.status) == (None, ThreadState.BUSY)
    assert await event_log.read(db, run.run_id) == []


async def test_the_thread_stays_busy_while_another_run_waits(db: Database) -> None:
    first = await stored_run(db)
    await stored_run(db, first.thread_id)
    claim = await claimed(db, first)
    await finish_run(db, finish_of(claim, thread_status=ThreadState.INTERRUPTED))
    thread = await get_thread(db, first.thread_id)
    assert (thread.status, thread.unfinished) == (ThreadState.BUSY, 1)


async def test_a_failed_run_without_a_state_keeps_what_the_thread_shows(db: Database) -> None:
    first = await claimed(db, await stored_run(db))
    await finish_run(db, finish_of(first))
    second = await claimed(db, await stored_run(db, first.run.thread_id))
    error = {"error": "ValueError", "message": "boom \x00"}
    nothing: dict[str, Any] = {"values": None, "interrupts": None, "head": None, "result": None, "last_events": []}
    failed = finish_of(
        second, state=RunState.ERROR, error=error, thread_status=ThreadState.ERROR, now=later(60), **nothing
    )
    assert await finish_run(db, failed)
    thread = await get_thread(db, first.run.thread_id)
    assert (thread.status, thread.error, thread.values) == (ThreadState.ERROR, error, {"answer": 42})
    assert (thread.updated_at, thread.state_updated_at) == (later(60), later(2))
    third = await claimed(db, await stored_run(db, first.run.thread_id))
    await finish_run(db, finish_of(third))
    assert (await get_thread(db, first.run.thread_id)).error is None


async def test_json_may_be_given_as_bytes(db: Database) -> None:
    claim = await claimed(db, await stored_run(db))
    await finish_run(db, finish_of(claim, result=b'{"r":[1]}', values=b'{"v":2}', interrupts=b"{}", head=b"{}"))
    assert (await get_run(db, claim.run.run_id)).result == {"r": [1]}
    assert (await get_thread(db, claim.run.thread_id)).values == {"v": 2}


async def test_the_log_is_read_after_an_id_across_batches_and_attempts(db: Database) -> None:
    run = await stored_run(db)
    first = await claimed(db, run)
    batches = [events(first, 1, 2, 3), events(first, 4, 5)]
    for batch in batches:
        await event_log.append(db, run.run_id, run.thread_id, first.epoch, batch)
    second = await claimed(db, run, attempt=2, holder="pod-b")
    batches.append(events(second, 1, 2))
    await event_log.append(db, run.run_id, run.thread_id, second.epoch, batches[2])
    every = [event for batch in batches for event in batch]
    assert await event_log.read(db, run.run_id) == every
    for n, event in enumerate(every):
        assert await event_log.read(db, run.run_id, event.id) == every[n + 1 :]
    base = run.event_base or first.run.event_base
    assert await event_log.read(db, run.run_id, EventId(base - 1, 9)) == every
    assert await event_log.read(db, run.run_id, EventId(base + 1, 0)) == []
    assert await event_log.read(db, run.run_id, limit_batches=1) == batches[0]


async def test_repeating_an_append_is_harmless(db: Database) -> None:
    claim = await claimed(db, await stored_run(db))
    for _ in range(2):
        await event_log.append(db, claim.run.run_id, claim.run.thread_id, claim.epoch, events(claim, 1, 2))
    await event_log.append(db, claim.run.run_id, claim.run.thread_id, claim.epoch, [])
    assert await event_log.read(db, claim.run.run_id) == events(claim, 1, 2)
