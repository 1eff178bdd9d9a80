"""What savers know without reading: never anything else than what a read would find."""

import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from tests.support.store_rows import claimed, finish_of, stored_run

from runyard_api.errors import Fenced
from runyard_store.checkpoints import Checkpointers, open_checkpointers
from runyard_store.checkpoints_postgres import FencedPostgresSaver
from runyard_store.database import Database, open_database
from runyard_store.finish import finish_run
from runyard_store.known_head import KnownHead
from runyard_store.leases import Claim


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    tags: set[str]
    count: int


async def _work(state: State) -> State:
    return {"log": ["worked"], "tags": {"a"}, "count": 1}


async def _ask(state: State) -> State:
    return {"log": [interrupt("sure?")]}


def working() -> StateGraph[State]:
    return StateGraph(State).add_node("work", _work).add_edge(START, "work")


def asking() -> StateGraph[State]:
    return StateGraph(State).add_node("ask", _ask).add_edge(START, "ask")


def nested() -> StateGraph[State]:
    return StateGraph(State).add_node("inner", working().compile()).add_edge(START, "inner")


@pytest.fixture
async def savers(url: str, db: Database) -> AsyncIterator[Checkpointers]:
    opened = await open_checkpointers(url)
    yield opened
    await opened.close()


def config_of(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


async def executed(savers: Checkpointers, graph: StateGraph[State], claim: Claim, given: Any, durability: Any) -> Any:
    """Runs the graph; gives the state by what the saver knows, and by a reader."""
    thread_id = claim.run.thread_id
    known = KnownHead(thread_id, empty=claim.pre_run.cut is None)
    bound = graph.compile(checkpointer=savers.saver(thread_id, claim.epoch, lambda: None, known))
    await bound.ainvoke(given, config_of(thread_id), durability=durability)
    known.end()
    mine = await bound.aget_state(config_of(thread_id))
    return mine, await graph.compile(checkpointer=savers.reader()).aget_state(config_of(thread_id)), known


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("graph", [working, asking, nested])
async def test_the_known_state_is_the_stored_one(
    db: Database, savers: Checkpointers, graph: Any, durability: str
) -> None:
    claim = await claimed(db, await stored_run(db))
    mine, stored, known = await executed(savers, graph(), claim, {"log": ["a"]}, durability)
    assert mine == stored
    assert known.answers(config_of(claim.run.thread_id)) == (graph is not asking)
    await finish_run(db, finish_of(claim))
    again = await claimed(db, await stored_run(db, claim.run.thread_id))
    given: Any = Command(resume="yes") if graph is asking else {"log": ["b"]}
    mine, stored, known = await executed(savers, graph(), again, given, durability)
    assert mine == stored
    assert known.answers(config_of(claim.run.thread_id))
    assert mine.values["log"][:1] == ["a"]


def test_nothing_is_known_of_another_thread_namespace_or_checkpoint() -> None:
    known, config = KnownHead("t"), config_of("t")
    known.putting()
    known.stored(config, empty_checkpoint(), {})
    assert not known.answers(config), "graph code may still change the values"
    known.end()
    assert known.answers(config)
    for other in ({"thread_id": "u"}, {"checkpoint_ns": "inner:1"}, {"checkpoint_id": "x"}):
        assert not known.answers({"configurable": {**config["configurable"], **other}})


@pytest.mark.parametrize("first", [True, False])
def test_a_checkpoint_with_pending_writes_is_read(first: bool) -> None:
    known, config, checkpoint = KnownHead("t", empty=True), config_of("t"), empty_checkpoint()
    known.end()
    assert (known.answers(config), known.head) == (True, None)
    of_checkpoint: Any = {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}
    if first:
        known.adding_writes(of_checkpoint)
    known.putting()
    known.stored(config, checkpoint, {})
    assert known.answers(config) is not first
    known.adding_writes(of_checkpoint)
    assert not known.answers(config)


async def test_a_deleted_thread_is_read(db: Database, savers: Checkpointers) -> None:
    claim = await claimed(db, await stored_run(db))
    known, config = KnownHead(claim.run.thread_id), config_of(claim.run.thread_id)
    saver = savers.saver(claim.run.thread_id, claim.epoch, lambda: None, known)
    known.end()
    await saver.aput(config, empty_checkpoint(), {}, {})
    assert await saver.aget_tuple(config) is not None
    await saver.adelete_thread(claim.run.thread_id)
    assert await saver.aget_tuple(config) is None


@pytest.mark.postgres
async def test_puts_store_what_langgraphs_own_saver_stores(postgres_url: str) -> None:
    db, savers = await open_database(postgres_url), await open_checkpointers(postgres_url)
    claim = await claimed(db, await stored_run(db))
    fenced = savers.saver(claim.run.thread_id, claim.epoch, lambda: None)
    assert isinstance(fenced, FencedPostgresSaver)
    async with await AsyncConnection[DictRow].connect(
        postgres_url, autocommit=True, prepare_threshold=0, row_factory=dict_row
    ) as connection:
        own, plain = AsyncPostgresSaver(connection), str(uuid4())
        for saver, thread_id in ((fenced, claim.run.thread_id), (own, plain)):
            await _put_everything(saver, thread_id)
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            mine, theirs = [await _rows(connection, table, t) for t in (claim.run.thread_id, plain)]
            assert mine == theirs
            assert mine
        await claimed(db, claim.run, attempt=2)
        with pytest.raises(Fenced):
            await _put_everything(fenced, claim.run.thread_id)
    await savers.close()
    await db.close()


async def _put_everything(saver: Any, thread_id: str) -> None:
    values = {"text": "a", "n": 1, "none": None, "list": [{"é": 1}], "delta": _DeltaSnapshot([1]), "flag": True}
    checkpoint: Any = {**empty_checkpoint(), "id": "1f", "ts": "t", "channel_values": values}
    config = {**config_of(thread_id), "metadata": {"run_id": "r"}}
    versions = {name: f"{n}.0" for n, name in enumerate([*values, "absent"])}
    for _ in range(2):
        config = await saver.aput(config, checkpoint, {"source": "loop", "step": 1}, versions)
    await saver.aput_writes(config, [("list", [1]), ("text", None), ("__error__", "early")], "task", "path")
    await saver.aput_writes(config, [("list", [2])], "task", "path")
    for answer in ("first", "second"):
        await saver.aput_writes(config, [("__resume__", [answer]), ("__resume__", [answer, 2])], "task")
    await saver.aput_writes(config, [], "task")


async def _rows(connection: AsyncConnection[DictRow], table: str, thread_id: str) -> list[str]:
    found = await (await connection.execute(f"SELECT * FROM {table} WHERE thread_id = %s", (thread_id,))).fetchall()
    return sorted(str({**row, "thread_id": ""}) for row in found)
