"""Metadata of threads, heads that become known, and copies."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt
from tests.support.store_rows import NOW, NOW_MS, USER, claimed, finish_of, later, stored_run

from runyard_api.errors import Held, NotFound
from runyard_api.states import RunState, ThreadState
from runyard_store.checkpoints import Checkpointers, open_checkpointers
from runyard_store.copying import copy_thread
from runyard_store.database import Database
from runyard_store.deletion import delete_thread
from runyard_store.finish import finish_run
from runyard_store.leases import claim_thread, release
from runyard_store.runs import finish_unheld
from runyard_store.thread_changes import merge_metadata, record_known_head, resting_epoch
from runyard_store.threads import create_thread, get_thread


async def test_metadata_is_merged_by_key(db: Database) -> None:
    thread_id = str(uuid4())
    made = await create_thread(db, thread_id=thread_id, user_id=USER, metadata={"a": {"x": 1}, "b": 2}, now=NOW)
    changed = await merge_metadata(db, thread_id, USER, {"a": {"y": 1}, "c": None}, later(1))
    assert changed.metadata == {"a": {"y": 1}, "b": 2, "c": None}
    assert (changed.updated_at, changed.created_at) == (later(1), made.created_at)
    assert await get_thread(db, thread_id) == changed
    with pytest.raises(NotFound):
        await merge_metadata(db, thread_id, "somebody else", {"a": 1}, NOW)
    assert await get_thread(db, thread_id) == changed


async def test_simultaneous_merges_lose_nothing(db: Database) -> None:
    thread_id = str(uuid4())
    await create_thread(db, thread_id=thread_id, user_id=USER, metadata={}, now=NOW)
    await asyncio.gather(*(merge_metadata(db, thread_id, USER, {f"k{n}": n}, NOW) for n in range(10)))
    assert (await get_thread(db, thread_id)).metadata == {f"k{n}": n for n in range(10)}


async def lost_thread(db: Database, state: RunState = RunState.ERROR) -> str:
    """A thread whose last run ended after its pod was lost."""
    run = await stored_run(db)
    await finish_run(db, finish_of(await claimed(db, run)))
    lost = await stored_run(db, run.thread_id)
    await claimed(db, lost)
    error = {"error": "E", "message": "m"} if state is RunState.ERROR else None
    await finish_unheld(db, lost.run_id, state, error, later(3))
    return run.thread_id


FOUND: dict[str, Any] = {"values": {"a": 2}, "next": ["ask"]}


@pytest.mark.parametrize(
    ("state", "status"), [(RunState.ERROR, ThreadState.ERROR), (RunState.INTERRUPTED, ThreadState.INTERRUPTED)]
)
async def test_an_unknown_head_becomes_known(db: Database, state: RunState, status: ThreadState) -> None:
    thread_id = await lost_thread(db, state)
    epoch = await resting_epoch(db, thread_id)
    assert epoch is not None
    await record_known_head(db, thread_id, epoch, values={"a": 2}, interrupts={}, head=FOUND)
    thread = await get_thread(db, thread_id)
    assert (thread.values, thread.head, thread.status) == ({"a": 2}, FOUND, status)
    await record_known_head(db, thread_id, epoch, values={"a": 3}, interrupts={}, head=FOUND)
    assert (await get_thread(db, thread_id)).values == {"a": 2}, "it was known by then"


async def test_a_head_that_was_read_before_somebody_wrote_isnt_recorded(db: Database) -> None:
    thread_id = await lost_thread(db)
    epoch = await resting_epoch(db, thread_id)
    assert epoch is not None
    newer = await claim_thread(db, thread_id, "an update", NOW_MS)
    assert await resting_epoch(db, thread_id) is None
    for stale in (epoch, newer):
        await record_known_head(db, thread_id, stale, values={"a": 2}, interrupts={}, head=FOUND)
    await release(db, thread_id, newer)
    await record_known_head(db, thread_id, epoch, values={"a": 2}, interrupts={}, head=FOUND)
    assert (await get_thread(db, thread_id)).head_unknown


class State(TypedDict):
    log: Annotated[list[str], lambda old, new: old + new]


def asking() -> StateGraph[State]:
    """A graph that asks a human inside a subgraph, after a step."""

    def ask(state: State) -> Any:
        return {"log": [f"answer {interrupt('well?')}"]}

    inner: Any = StateGraph(State)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer: Any = StateGraph(State)
    outer.add_node("before", lambda state: {"log": ["before"]})
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "before")
    outer.add_edge("before", "inner")
    graph: StateGraph[State] = outer
    return graph


@pytest.fixture
async def savers(url: str) -> AsyncIterator[Checkpointers]:
    opened = await open_checkpointers(url)
    yield opened
    await opened.close()


def config_of(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


async def reading(savers: Checkpointers, thread_id: str) -> list[Any]:
    graph = asking().compile(checkpointer=savers.reader())
    return [state async for state in graph.aget_state_history(config_of(thread_id))]


async def waiting_thread(db: Database, savers: Checkpointers) -> str:
    claim = await claimed(db, await stored_run(db))
    thread_id = claim.run.thread_id
    graph: CompiledStateGraph[Any] = asking().compile(checkpointer=savers.saver(thread_id, claim.epoch, lambda: None))
    await graph.ainvoke(
        {"log": ["hi"]}, config_of(thread_id) | {"metadata": {"thread_id": thread_id, "run_id": claim.run.run_id}}
    )
    head = {"checkpoint": {"thread_id": thread_id}, "next": ["inner"], "values": {"thread_id": thread_id}}
    await finish_run(db, finish_of(claim, head=head, thread_status=ThreadState.INTERRUPTED, interrupts={"t": []}))
    return thread_id


async def test_a_copy_has_the_same_history_and_goes_on_by_itself(db: Database, savers: Checkpointers) -> None:
    source, copy = await waiting_thread(db, savers), str(uuid4())
    row = await copy_thread(db, source, USER, copy, later(9))
    assert await get_thread(db, copy) == row
    assert (row.status, row.run_seq, row.unfinished, row.created_at) == (ThreadState.IDLE, 0, 0, later(9))
    assert row.head == {"checkpoint": {"thread_id": copy}, "next": ["inner"], "values": {"thread_id": source}}

    before, copied = await reading(savers, source), await reading(savers, copy)
    assert [s.values for s in copied] == [s.values for s in before]
    assert [s.interrupts for s in copied] == [s.interrupts for s in before]
    assert {s.config["configurable"]["thread_id"] for s in copied} == {copy}
    assert source not in repr(copied)

    answer = await claimed(db, await stored_run(db, copy), now_ms=2**42)
    graph = asking().compile(checkpointer=savers.saver(copy, answer.epoch, lambda: None))
    result = await graph.ainvoke(Command(resume="yes"), config_of(copy))
    assert result["log"][-1] == "answer yes"
    assert [s.values for s in await reading(savers, source)] == [s.values for s in before]


async def test_what_can_be_copied(db: Database, savers: Checkpointers) -> None:
    source = await waiting_thread(db, savers)
    for missing, user in ((str(uuid4()), USER), (source, "somebody else")):
        with pytest.raises(NotFound):
            await copy_thread(db, missing, user, str(uuid4()), NOW)
    run = await stored_run(db, source)
    await copy_thread(db, source, USER, str(uuid4()), NOW)
    claim = await claimed(db, run)
    with pytest.raises(Held):
        await copy_thread(db, source, USER, str(uuid4()), NOW)
    with pytest.raises(NotFound):
        await copy_thread(db, source, "somebody else", str(uuid4()), NOW)
    await finish_run(db, finish_of(claim))
    await claim_thread(db, source, "an update that died", NOW_MS)
    copy = str(uuid4())
    await copy_thread(db, source, USER, copy, later(60))
    assert len(await reading(savers, copy)) == len(await reading(savers, source))


async def test_a_thread_that_is_anothers_by_the_time_it_is_free_is_neither_copied_nor_claimed(db: Database) -> None:
    source = str(uuid4())
    await create_thread(db, thread_id=source, user_id=USER, metadata={}, now=NOW)
    await claim_thread(db, source, "an update", NOW_MS)
    copying = asyncio.create_task(copy_thread(db, source, USER, str(uuid4()), NOW))
    await asyncio.sleep(0.2)
    await delete_thread(db, source, USER)
    await create_thread(db, thread_id=source, user_id="somebody else", metadata={"secret": 1}, now=NOW)
    with pytest.raises(NotFound):
        await copying
    with pytest.raises(NotFound):
        await claim_thread(db, source, "an update", NOW_MS, user_id=USER)
    assert await claim_thread(db, source, "an update", NOW_MS, user_id="somebody else")
