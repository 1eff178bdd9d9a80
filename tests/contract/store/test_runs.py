"""Threads and runs: admission in one transaction, reading, cancelling, ends without a runtime."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.support.store_rows import NOW, NOW_MS, USER, claimed, events, finish_of, later, new_run, stored_run

from runyard_api.errors import AlreadyExists, Fenced, Invalid, NotFound, Stale, ThreadBusy
from runyard_api.payload import Command, RunPayload
from runyard_api.states import CancelAction, RunState, Strategy, ThreadState
from runyard_store import event_log, keys, runs
from runyard_store.database import Database
from runyard_store.finish import finish_run
from runyard_store.leases import claim_run
from runyard_store.threads import create_thread, get_thread


async def test_a_thread_comes_back_as_it_was_created(db: Database) -> None:
    thread_id = str(uuid4())
    config = {"configurable": {"text": "null \x00 char", "deep": [[[1e300]]]}}
    made = await create_thread(db, thread_id=thread_id, user_id=USER, metadata={"a": [1]}, config=config, now=NOW)
    assert made == await get_thread(db, thread_id, USER)
    assert (made.metadata, made.config, made.created_at) == ({"a": [1]}, config, NOW)
    assert (made.status, made.values, made.interrupts, made.head) == (ThreadState.IDLE, None, {}, None)


async def test_creating_a_thread_twice_raises_or_does_nothing(db: Database) -> None:
    thread_id = str(uuid4())
    first = await create_thread(db, thread_id=thread_id, user_id=USER, metadata={"n": 1}, now=NOW)
    again = await create_thread(
        db, thread_id=thread_id, user_id=USER, metadata={"n": 2}, if_exists="do_nothing", now=later(5)
    )
    assert again == first
    with pytest.raises(AlreadyExists):
        await create_thread(db, thread_id=thread_id, user_id=USER, metadata={}, now=NOW)


async def test_another_users_thread_does_not_exist(db: Database) -> None:
    thread_id = str(uuid4())
    await create_thread(db, thread_id=thread_id, user_id="somebody", metadata={}, now=NOW)
    with pytest.raises(NotFound):
        await get_thread(db, thread_id, USER)
    with pytest.raises(AlreadyExists):
        await create_thread(db, thread_id=thread_id, user_id=USER, metadata={}, if_exists="do_nothing", now=NOW)
    with pytest.raises(NotFound, match=r"Thread or assistant not found\."):
        await runs.create_run(db, new_run(thread_id), NOW)


async def test_a_null_character_in_filterable_metadata_is_refused_or_kept(db: Database) -> None:
    create = create_thread(db, thread_id=str(uuid4()), user_id=USER, metadata={"k": "\x00"}, now=NOW)
    if db.kind == "sqlite":
        assert (await create).metadata == {"k": "\x00"}
    else:
        with pytest.raises(Invalid):
            await create


async def test_a_killed_process_counts_as_a_failure_of_what_was_running(db: Database) -> None:
    waiting, running, ended = await stored_run(db), await stored_run(db), await stored_run(db)
    await claimed(db, running)
    await finish_run(db, finish_of(await claimed(db, ended)))
    for _ in range(2):
        await runs.count_failures(db)
    counted = [(await runs.get_run(db, run.run_id)).failures for run in (waiting, running, ended)]
    assert counted == [0, 2, 0]


async def test_unfinished_runs_whose_rows_ask_for_a_cancel_are_found(db: Database) -> None:
    plain, asked, ended = await stored_run(db), await stored_run(db), await stored_run(db)
    for run in (asked, ended):
        await runs.request_cancel(db, run.run_id, CancelAction.ROLLBACK, "why")
    await runs.finish_unheld(db, ended.run_id, RunState.INTERRUPTED, None, later(1))
    found = {run.run_id: run for run in await runs.cancelled_runs(db)}
    assert found.keys() & {plain.run_id, asked.run_id, ended.run_id} == {asked.run_id}
    assert (found[asked.run_id].cancel_action, found[asked.run_id].cancel_reason) == (CancelAction.ROLLBACK, "why")


async def test_a_created_run_is_read_back_and_its_thread_is_busy(db: Database) -> None:
    payload = RunPayload(command=Command(resume={"ok": "\x00"}), config={"tags": ["t"]}, stream_mode=["messages-tuple"])
    new = new_run(payload=payload, metadata={"m": 1}, thread_metadata={"owner": "x"}, temporary=True)
    row = await runs.create_run(db, new, NOW)
    assert row == await runs.get_run(db, new.run_id, new.thread_id, USER)
    assert RunPayload.model_validate(row.payload) == payload
    assert (row.sequence, row.status, row.attempt, row.temporary) == (1, RunState.PENDING, 0, True)
    thread = await get_thread(db, new.thread_id)
    assert (thread.status, thread.unfinished, thread.run_seq, thread.graph_id) == (ThreadState.BUSY, 1, 1, "graph")
    assert thread.metadata == {"owner": "x", "graph_id": "graph", "assistant_id": "assistant"}


async def test_a_run_on_a_missing_thread_is_refused_unless_it_may_create_it(db: Database) -> None:
    with pytest.raises(NotFound, match=r"Thread or assistant not found\."):
        await runs.create_run(db, new_run(if_not_exists="reject"), NOW)


async def test_repeating_a_creation_gives_the_same_run(db: Database) -> None:
    new = new_run(multitask_strategy=Strategy.REJECT, object_uid="uid-1")
    row = await runs.create_run(db, new, NOW)
    assert await runs.create_run(db, new, later(9)) == row
    await runs.finish_unheld(db, row.run_id, RunState.ERROR, {"error": "E", "message": "m"}, NOW)
    assert (await runs.create_run(db, new, later(9))).status is RunState.ERROR
    with pytest.raises(AlreadyExists):
        await runs.create_run(db, replace(new, thread_id=str(uuid4())), NOW)
    thread = await get_thread(db, new.thread_id)
    assert (thread.run_seq, thread.unfinished) == (1, 0)


@pytest.mark.parametrize("thread_exists", [True, False])
async def test_of_twenty_simultaneous_rejects_exactly_one_is_admitted(db: Database, thread_exists: bool) -> None:
    thread_id = str(uuid4())
    if thread_exists:
        await create_thread(db, thread_id=thread_id, user_id=USER, metadata={}, now=NOW)
    attempts = (stored_run(db, thread_id, multitask_strategy=Strategy.REJECT) for _ in range(20))
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["RunRow", *["ThreadBusy"] * 19]
    assert all(isinstance(r, runs.RunRow | ThreadBusy) for r in results)
    assert (await get_thread(db, thread_id)).unfinished == 1


async def test_simultaneous_runs_of_a_new_thread_get_each_a_sequence(db: Database) -> None:
    thread_id = str(uuid4())
    rows = await asyncio.gather(*(stored_run(db, thread_id) for _ in range(15)))
    assert sorted(row.sequence for row in rows) == list(range(1, 16))
    assert await runs.count_runs(db, thread_id, USER) == 15


async def test_runs_are_listed_newest_first_by_page_and_status(db: Database) -> None:
    rows = [await stored_run(db, thread_id) for thread_id in [str(uuid4())] * 4]
    thread_id = rows[0].thread_id
    await runs.finish_unheld(db, rows[1].run_id, RunState.INTERRUPTED, None, NOW)
    listed = await runs.list_runs(db, thread_id, USER, limit=2, offset=1)
    assert [row.sequence for row in listed] == [3, 2]
    assert [r.sequence for r in await runs.list_runs(db, thread_id, status=RunState.PENDING)] == [4, 3, 1]
    assert await runs.count_runs(db, thread_id, status=RunState.PENDING) == 3
    assert await runs.list_runs(db, thread_id, "somebody") == []
    with pytest.raises(NotFound):
        await runs.get_run(db, rows[0].run_id, user_id="somebody")
    with pytest.raises(NotFound):
        await runs.get_run(db, rows[0].run_id, thread_id=str(uuid4()))


async def test_runs_that_never_had_an_object_are_found(db: Database) -> None:
    lost, made, ended = [await stored_run(db) for _ in range(3)]
    await runs.note_object(db, made.run_id, "uid-9", later(1))
    await runs.finish_unheld(db, ended.run_id, RunState.ERROR, None, NOW)
    rows = {lost.run_id, made.run_id, ended.run_id}
    assert rows & {r.run_id for r in await runs.runs_without_object(db, later(10))} == {lost.run_id}
    assert not rows & {r.run_id for r in await runs.runs_without_object(db, NOW)}
    assert {made.run_id} == {r.run_id for r in await runs.runs_with_object(db, later(2)) if r.object_uid == "uid-9"}
    assert not rows & {r.run_id for r in await runs.runs_with_object(db, later(1))}
    noted = await runs.get_run(db, made.run_id)
    assert (noted.object_uid, noted.object_made_at) == ("uid-9", later(1))
    assert rows & {r.run_id for r in await runs.unfinished_runs(db)} == {lost.run_id, made.run_id}


async def test_a_cancel_is_escalated_and_never_weakened(db: Database) -> None:
    run = await stored_run(db)
    assert (await runs.request_cancel(db, run.run_id, CancelAction.INTERRUPT, "why")).cancel_reason == "why"
    await runs.request_cancel(db, run.run_id, CancelAction.ROLLBACK)
    assert (await runs.request_cancel(db, run.run_id, CancelAction.INTERRUPT)).cancel_action is CancelAction.ROLLBACK
    await runs.finish_unheld(db, run.run_id, RunState.INTERRUPTED, None, NOW)
    assert (await runs.request_cancel(db, run.run_id, CancelAction.INTERRUPT)).status is RunState.INTERRUPTED
    with pytest.raises(NotFound):
        await runs.request_cancel(db, "nobody", CancelAction.INTERRUPT)


async def test_a_queued_run_ends_and_the_thread_rests_as_before(db: Database) -> None:
    first = await stored_run(db)
    waiting = finish_of(await claimed(db, first), interrupts={"task": [{"id": "i", "value": "?"}]})
    await finish_run(db, replace(waiting, thread_status=ThreadState.INTERRUPTED))
    second, third = [await stored_run(db, first.thread_id) for _ in range(2)]
    await runs.finish_unheld(db, second.run_id, RunState.INTERRUPTED, None, later(3))
    assert (await get_thread(db, first.thread_id)).status is ThreadState.BUSY
    ended = await runs.finish_unheld(db, third.run_id, RunState.INTERRUPTED, None, later(3))
    assert ended == await runs.get_run(db, third.run_id)
    assert ended.ended_at == later(3)
    assert (await get_thread(db, first.thread_id)).status is ThreadState.INTERRUPTED


async def test_a_run_that_never_started_leaves_its_error_on_the_thread(db: Database) -> None:
    error = {"error": "ImagePullFailed", "message": "no such image"}
    run = await stored_run(db)
    ended = await runs.finish_unheld(db, run.run_id, RunState.ERROR, error, NOW)
    assert ended.error == error
    thread = await get_thread(db, run.thread_id)
    assert (thread.status, thread.error) == (ThreadState.ERROR, error)
    again = await runs.finish_unheld(db, run.run_id, RunState.INTERRUPTED, None, later(9))
    assert again == ended


async def test_an_unheld_end_fences_out_a_runtime_that_still_holds_the_run(db: Database) -> None:
    run = await stored_run(db)
    claim = await claimed(db, run)
    await runs.finish_unheld(db, run.run_id, RunState.TIMEOUT, {"error": "T", "message": "m"}, NOW)
    with pytest.raises(Fenced):
        await event_log.append(db, run.run_id, run.thread_id, claim.epoch, events(claim, 1))
    with pytest.raises(Fenced):
        await finish_run(db, finish_of(claim))
    assert (await runs.get_run(db, run.run_id)).status is RunState.TIMEOUT
    assert (await claimed(db, run, attempt=2)).outcome == "terminal"
    assert (await get_thread(db, run.thread_id)).unfinished == 0


async def test_an_unheld_end_after_an_attempt_leaves_the_head_unknown_until_the_next_end(db: Database) -> None:
    first = await stored_run(db)
    await finish_run(db, finish_of(await claimed(db, first)))
    lost = await stored_run(db, first.thread_id)
    await claimed(db, lost)
    await runs.finish_unheld(db, lost.run_id, RunState.INTERRUPTED, None, later(3))
    thread = await get_thread(db, first.thread_id)
    assert (thread.head_unknown, thread.status) == (True, ThreadState.IDLE)
    last = await stored_run(db, first.thread_id)
    await finish_run(db, finish_of(await claimed(db, last)))
    thread = await get_thread(db, first.thread_id)
    assert (thread.head_unknown, thread.head) == (False, {"values": {"answer": 42}, "next": []})


async def test_an_unheld_end_before_any_attempt_leaves_the_head_as_it_is(db: Database) -> None:
    fresh = await stored_run(db)
    await runs.finish_unheld(db, fresh.run_id, RunState.INTERRUPTED, None, NOW)
    assert (await get_thread(db, fresh.thread_id)).head is None
    run = await stored_run(db, fresh.thread_id)
    await finish_run(db, finish_of(await claimed(db, run)))
    shown = (await get_thread(db, fresh.thread_id)).head
    queued = await stored_run(db, fresh.thread_id)
    await runs.finish_unheld(db, queued.run_id, RunState.INTERRUPTED, None, later(3))
    thread = await get_thread(db, fresh.thread_id)
    assert (thread.head, thread.head_unknown) == (shown, False)


async def test_a_rolled_back_run_leaves_the_head_as_it_was(db: Database) -> None:
    first = await stored_run(db)
    await finish_run(db, finish_of(await claimed(db, first)))
    shown = (await get_thread(db, first.thread_id)).head
    undone = await stored_run(db, first.thread_id)
    await claimed(db, undone)
    await runs.delete_run(db, undone.run_id, later(3))
    assert (await get_thread(db, first.thread_id)).head == shown


async def test_a_deleted_run_is_gone_with_its_events(db: Database) -> None:
    run = await stored_run(db)
    claim = await claimed(db, run)
    await event_log.append(db, run.run_id, run.thread_id, claim.epoch, events(claim, 1))
    await runs.delete_run(db, run.run_id, NOW)
    await runs.delete_run(db, run.run_id, NOW)
    with pytest.raises(NotFound):
        await runs.get_run(db, run.run_id)
    assert await event_log.read(db, run.run_id) == []
    thread = await get_thread(db, run.thread_id)
    assert (thread.status, thread.unfinished, thread.run_seq) == (ThreadState.IDLE, 0, 1)
    assert (await stored_run(db, run.thread_id)).sequence == 2


async def test_claim_and_unheld_end_at_once_have_one_winner(db: Database) -> None:
    for _ in range(10):
        run = await stored_run(db)
        claim, ended = await asyncio.gather(
            claim_run(db, run_id=run.run_id, attempt=1, holder="pod", now_ms=NOW_MS),
            runs.finish_unheld(db, run.run_id, RunState.INTERRUPTED, None, NOW),
        )
        assert ended.status is RunState.INTERRUPTED
        if claim.outcome == "started":
            with pytest.raises(Fenced):
                await finish_run(db, finish_of(claim))
        else:
            assert claim.outcome == "terminal"
        assert (await get_thread(db, run.thread_id)).unfinished == 0


async def test_create_and_finish_at_once_leave_the_count_right(db: Database) -> None:
    thread_id = str(uuid4())
    run = await stored_run(db, thread_id)
    for _ in range(10):
        claim = await claimed(db, run)
        finished, run = await asyncio.gather(finish_run(db, finish_of(claim)), stored_run(db, thread_id))
        assert finished
        thread = await get_thread(db, thread_id)
        assert (thread.unfinished, thread.status) == (1, ThreadState.BUSY)


async def test_an_attempt_that_is_not_newer_is_stale(db: Database) -> None:
    run = await stored_run(db)
    await claimed(db, run, attempt=2)
    with pytest.raises(Stale):
        await claimed(db, run, attempt=1)


async def test_a_key_opens_its_user_and_is_stored_as_a_hash(db: Database) -> None:
    await keys.add_key(db, "secret", "alice", "laptop", NOW)
    await keys.add_key(db, "secret", "mallory", "again", NOW)
    assert await keys.user_of_key(db, "secret") == "alice"
    assert await keys.user_of_key(db, "other") is None


async def test_a_run_on_an_idle_thread_takes_the_next_sequence_and_marks_the_thread(db: Database) -> None:
    thread = await create_thread(db, thread_id=str(uuid4()), user_id=USER, metadata={"a": 1, "graph_id": "x"}, now=NOW)
    for sequence in (1, 2):
        run = await stored_run(db, thread.thread_id, if_not_exists="reject")
        assert run == await runs.get_run(db, run.run_id)
        assert run.sequence == sequence
        seen = await get_thread(db, thread.thread_id)
        assert (seen.status, seen.unfinished, seen.run_seq) == (ThreadState.BUSY, 1, sequence)
        assert seen.metadata == {"a": 1, "graph_id": run.graph_id, "assistant_id": run.assistant_id}
        await runs.finish_unheld(db, run.run_id, RunState.ERROR, None, NOW)
    again = await stored_run(db, thread.thread_id, run_id=run.run_id, if_not_exists="reject")
    assert (again.sequence, again.status) == (2, RunState.ERROR)
    assert (await get_thread(db, thread.thread_id)).unfinished == 0
    for other in (new_run(thread.thread_id, user_id="u2", if_not_exists="reject"), new_run(if_not_exists="reject")):
        with pytest.raises(NotFound):
            await runs.create_run(db, other, NOW)


async def test_runs_that_race_for_an_idle_thread_get_one_sequence_each(db: Database) -> None:
    thread = await create_thread(db, thread_id=str(uuid4()), user_id=USER, metadata={}, now=NOW)
    made = await asyncio.gather(*(stored_run(db, thread.thread_id, if_not_exists="reject") for _ in range(20)))
    assert sorted(run.sequence for run in made) == list(range(1, 21))
    assert (await get_thread(db, thread.thread_id)).unfinished == 20
