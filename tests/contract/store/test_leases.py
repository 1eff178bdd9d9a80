"""The thread lease: who may claim, what a claim fixes, who is fenced."""

import asyncio
from uuid import uuid4

import pytest
from tests.support.store_rows import NOW, NOW_MS, USER, claimed, events, finish_of, later, stored_run

from runyard_api.errors import Conflict, Early, Fenced, Held, NotFound, Stale
from runyard_api.states import RunState, ThreadState
from runyard_store import event_log
from runyard_store.database import Database
from runyard_store.finish import finish_run
from runyard_store.leases import UPDATE_CLAIM_MS, check, claim_run, claim_thread, release
from runyard_store.runs import get_run
from runyard_store.threads import ThreadUpdate, create_thread, get_thread, record_state


async def test_the_first_claim_starts_the_run(db: Database) -> None:
    run = await stored_run(db)
    claim = await claimed(db, run)
    assert (claim.outcome, claim.resume, claim.head_ms, claim.pre_run.cut) == ("started", False, None, None)
    assert claim.run == await get_run(db, run.run_id)
    assert (claim.run.status, claim.run.attempt, claim.run.started_at) == (RunState.RUNNING, 1, NOW)
    assert claim.run.event_base == NOW_MS
    assert await check(db, run.thread_id, claim.epoch)


async def test_repeating_a_claim_changes_nothing(db: Database) -> None:
    run = await stored_run(db)
    first = await claimed(db, run)
    again = await claimed(db, run, now_ms=NOW_MS + 900)
    assert (again.outcome, again.epoch, again.run) == ("mine", first.epoch, first.run)


async def test_the_same_attempt_of_another_holder_is_stale(db: Database) -> None:
    run = await stored_run(db)
    await claimed(db, run, holder="pod-a")
    with pytest.raises(Stale):
        await claimed(db, run, holder="pod-b")


async def test_of_two_simultaneous_claims_one_starts(db: Database) -> None:
    run = await stored_run(db)
    results = await asyncio.gather(*(claimed(db, run, holder=f"pod-{n}") for n in range(8)), return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["Claim", *["Stale"] * 7]


async def test_a_newer_attempt_takes_over_and_the_older_is_fenced(db: Database) -> None:
    run = await stored_run(db)
    old = await claimed(db, run)
    new = await claimed(db, run, attempt=2, holder="pod-b", now_ms=NOW_MS + 60_000)
    assert (new.outcome, new.epoch, new.run.attempt) == ("started", old.epoch + 1, 2)
    assert new.run.event_base == old.run.event_base, "the base of ids is fixed at the first claim"
    assert new.run.started_at == old.run.started_at
    assert not await check(db, run.thread_id, old.epoch)
    with pytest.raises(Fenced):
        await event_log.append(db, run.run_id, run.thread_id, old.epoch, events(old, 1))
    with pytest.raises(Fenced):
        await finish_run(db, finish_of(old))
    assert (await get_run(db, run.run_id)).status is RunState.RUNNING
    assert await finish_run(db, finish_of(new))


async def test_a_run_waits_for_lower_sequences(db: Database) -> None:
    first = await stored_run(db)
    second = await stored_run(db, first.thread_id)
    with pytest.raises(Early):
        await claimed(db, second)
    claim = await claimed(db, first)
    with pytest.raises(Early):
        await claimed(db, second)
    await finish_run(db, finish_of(claim))
    assert (await claimed(db, second)).outcome == "started"


async def test_a_finished_run_is_never_executed_again(db: Database) -> None:
    run = await stored_run(db)
    claim = await claimed(db, run)
    await finish_run(db, finish_of(claim))
    for attempt, holder in ((1, "pod-a"), (2, "pod-b")):
        again = await claimed(db, run, attempt=attempt, holder=holder)
        assert (again.outcome, again.run.result) == ("terminal", {"answer": 42})


async def test_event_bases_of_a_thread_rise_whatever_the_clock_says(db: Database) -> None:
    first = await stored_run(db)
    claim = await claimed(db, first, now_ms=NOW_MS)
    await finish_run(db, finish_of(claim))
    second = await claimed(db, await stored_run(db, first.thread_id), now_ms=NOW_MS - 5_000)
    assert second.run.event_base == claim.run.event_base + 1


async def test_an_unknown_run_cannot_be_claimed(db: Database) -> None:
    with pytest.raises(NotFound):
        await claim_run(db, run_id=str(uuid4()), attempt=1, holder="pod", now_ms=NOW_MS)


async def test_a_state_update_holds_a_run_off_until_it_is_released_or_too_old(db: Database) -> None:
    run = await stored_run(db)
    epoch = await claim_thread(db, run.thread_id, "update-1", NOW_MS)
    with pytest.raises(Held) as held:
        await claimed(db, run)
    assert held.value.holder == "update-1"
    with pytest.raises(Held):
        await claim_thread(db, run.thread_id, "update-2", NOW_MS + 1)
    claim = await claimed(db, run, now_ms=NOW_MS + UPDATE_CLAIM_MS)
    assert claim.epoch == epoch + 1
    await release(db, run.thread_id, epoch)
    with pytest.raises(Held):
        await claim_thread(db, run.thread_id, "update-3", NOW_MS + 10 * UPDATE_CLAIM_MS)
    await finish_run(db, finish_of(claim))
    assert await claim_thread(db, run.thread_id, "update-3", NOW_MS) == epoch + 2


async def test_a_state_update_is_written_under_its_lease_only(db: Database) -> None:
    thread_id = str(uuid4())
    await create_thread(db, thread_id=thread_id, user_id=USER, metadata={}, now=NOW)
    epoch = await claim_thread(db, thread_id, "update", NOW_MS)
    change = ThreadUpdate(
        values=b'{"a":1}', interrupts={}, head={"next": ["n"]}, status=ThreadState.INTERRUPTED, now=later(1)
    )
    await record_state(db, thread_id, epoch, change)
    await release(db, thread_id, epoch)
    thread = await get_thread(db, thread_id)
    assert (thread.values, thread.status, thread.state_updated_at) == ({"a": 1}, ThreadState.INTERRUPTED, later(1))
    with pytest.raises(Fenced):
        await record_state(db, thread_id, epoch - 1, change)
    with pytest.raises(NotFound):
        await claim_thread(db, str(uuid4()), "update", NOW_MS)


async def test_a_state_update_leaves_a_busy_thread_busy(db: Database) -> None:
    run = await stored_run(db)
    epoch = await claim_thread(db, run.thread_id, "update", NOW_MS)
    change = ThreadUpdate(values={}, interrupts={}, head=None, status=ThreadState.IDLE, now=NOW)
    await record_state(db, run.thread_id, epoch, change)
    assert (await get_thread(db, run.thread_id)).status is ThreadState.BUSY


async def test_claims_and_writes_at_once_never_let_a_stale_write_through(db: Database) -> None:
    """Attempts follow each other while the one before still appends: after a claim returned, nothing older lands."""
    run = await stored_run(db)
    claim = await claimed(db, run)

    async def write(number: int) -> int | None:
        try:
            await event_log.append(db, run.run_id, run.thread_id, claim.epoch, events(claim, number))
        except Conflict:
            return None
        return number

    writes = [asyncio.ensure_future(write(n)) for n in range(1, 20)]
    await claimed(db, run, attempt=2, holder="pod-b")
    seen = len(await event_log.read(db, run.run_id))
    landed = [n for n in await asyncio.gather(*writes) if n]
    assert len(landed) == seen == len(await event_log.read(db, run.run_id))


async def test_simultaneous_updates_of_one_thread_take_turns(db: Database) -> None:
    thread_id = (await create_thread(db, thread_id=str(uuid4()), user_id=USER, metadata={}, now=NOW)).thread_id
    inside = 0

    async def write(n: int) -> int:
        nonlocal inside
        epoch = await claim_thread(db, thread_id, f"update {n}", NOW_MS, patience_s=30)
        inside += 1
        assert inside == 1
        assert await check(db, thread_id, epoch)
        inside -= 1
        await release(db, thread_id, epoch)
        return epoch

    epochs = await asyncio.gather(*(write(n) for n in range(20)))
    assert len(set(epochs)) == 20


async def test_an_update_waits_for_another_one_only_so_long_and_for_a_run_not_at_all(db: Database) -> None:
    run = await stored_run(db)
    epoch = await claim_thread(db, run.thread_id, "update", NOW_MS)
    with pytest.raises(Held, match="when that one is done"):
        await claim_thread(db, run.thread_id, "another", NOW_MS, patience_s=0.05)
    await release(db, run.thread_id, epoch)
    await claimed(db, run)
    with pytest.raises(Held, match="when its run has ended"):
        await asyncio.wait_for(claim_thread(db, run.thread_id, "another", NOW_MS, patience_s=600), 60)
    with pytest.raises(NotFound):
        await claim_thread(db, str(uuid4()), "another", NOW_MS, patience_s=600)
