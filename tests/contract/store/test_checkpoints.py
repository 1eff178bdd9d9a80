"""LangGraph's savers behind the lease, driven by real compiled graphs; its store; the pre-run point and going back."""

import asyncio
import operator
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from sqlalchemy import text
from tests.support.store_rows import NOW, claimed, finish_of, stored_run

from runyard_api.errors import Fenced
from runyard_api.payload import RunPayload
from runyard_api.states import RunState
from runyard_store.checkpoints import Checkpointers, open_checkpointers
from runyard_store.database import Database
from runyard_store.finish import finish_rollback, finish_run
from runyard_store.leases import Claim
from runyard_store.pre_run import restore_pre_run
from runyard_store.runs import delete_run, get_run
from runyard_store.threads import get_thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


@dataclass
class Asking:
    """A graph that asks a human twice in one node, then works; `executed` notes what really ran."""

    executed: list[str] = field(default_factory=list)

    def build(self) -> StateGraph[State]:
        async def ask(state: State) -> dict[str, list[str]]:
            answers = (interrupt("delete the file?"), interrupt("send the money?"))
            self.executed.append(f"ask {answers}")
            return {"log": [f"{answers}"]}

        async def work(state: State) -> dict[str, list[str]]:
            self.executed.append("work")
            return {"log": ["worked"]}

        graph = StateGraph(State)
        graph.add_node("ask", ask)
        graph.add_node("work", work)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", "work")
        return graph


@dataclass
class AskingInSubgraph(Asking):
    """The same questions in two nodes of a subgraph."""

    def build(self) -> StateGraph[State]:
        inner = StateGraph(State)

        def asking(name: str, question: str) -> None:
            async def ask(state: State) -> dict[str, list[str]]:
                answer = interrupt(question)
                self.executed.append(f"ask {answer}")
                return {"log": [f"{answer}"]}

            inner.add_node(name, ask)

        asking("first", "delete the file?")
        asking("second", "send the money?")
        inner.add_edge(START, "first")
        inner.add_edge("first", "second")
        graph = StateGraph(State)
        graph.add_node("inner", inner.compile())
        graph.add_edge(START, "inner")
        return graph


@pytest.fixture
async def savers(url: str, db: Database) -> AsyncIterator[Checkpointers]:
    opened = await open_checkpointers(url)
    yield opened
    await opened.close()


def saver_of(savers: Checkpointers, claim: Claim) -> BaseCheckpointSaver[str]:
    return savers.saver(claim.run.thread_id, claim.epoch, lambda: None)


def config_of(claim: Claim) -> Any:
    return {"configurable": {"thread_id": claim.run.thread_id}, "metadata": {"run_id": claim.run.run_id}}


async def executed_run(
    db: Database, savers: Checkpointers, graph: StateGraph[State], value: Any, thread_id: str | None = None
) -> Claim:
    """One run from its row to its end."""
    claim = await claimed(db, await stored_run(db, thread_id))
    await graph.compile(checkpointer=saver_of(savers, claim)).ainvoke(value, config_of(claim))
    await finish_run(db, finish_of(claim))
    return claim


async def questions(savers: Checkpointers, graph: StateGraph[State], thread_id: str) -> list[str]:
    """What the thread asks its human now."""
    compiled = graph.compile(checkpointer=savers.reader())
    state = await compiled.aget_state({"configurable": {"thread_id": thread_id}})
    return [str(i.value) for i in state.interrupts]


async def contents(db: Database, thread_id: str) -> dict[str, list[tuple[Any, ...]]]:
    """Everything LangGraph's savers keep of a thread."""
    tables = (
        ["checkpoints", "checkpoint_writes", "checkpoint_blobs"]
        if db.kind == "postgresql"
        else ["checkpoints", "writes"]
    )
    async with db.read() as connection:
        return {
            table: sorted(
                tuple(str(value) for value in row)
                for row in await connection.execute(
                    text(f"SELECT * FROM {table} WHERE thread_id = :t"),
                    {"t": thread_id},
                )
            )
            for table in tables
        }


async def test_a_run_keeps_its_state_across_savers(db: Database, savers: Checkpointers) -> None:
    graph = Asking()
    first = await executed_run(db, savers, graph.build(), {"log": ["hello"]})
    thread_id = first.run.thread_id
    assert await questions(savers, graph.build(), thread_id) == ["delete the file?"]
    await executed_run(db, savers, graph.build(), Command(resume="yes"), thread_id)
    await executed_run(db, savers, graph.build(), Command(resume="no"), thread_id)
    assert graph.executed == ["ask ('yes', 'no')", "work"]
    state = await graph.build().compile(checkpointer=savers.reader()).aget_state(config_of(first))
    assert state.values["log"] == ["hello", "('yes', 'no')", "worked"]
    history = [
        s async for s in graph.build().compile(checkpointer=savers.reader()).aget_state_history(config_of(first))
    ]
    assert history[0].config == state.config


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_stale_run_writes_nothing_and_is_told(db: Database, savers: Checkpointers, durability: Any) -> None:
    run = await stored_run(db)
    stale = await claimed(db, run)
    fenced: list[str] = []
    saver = savers.saver(run.thread_id, stale.epoch, lambda: fenced.append("fenced"))
    steps = 0

    async def step(state: State) -> dict[str, list[str]]:
        nonlocal steps
        steps += 1
        if steps == 3:
            await claimed(db, run, attempt=2, holder="pod-b")
        return {"log": [str(steps)]}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: "step" if len(s["log"]) < 8 else END)
    with pytest.raises(Fenced):
        async for _ in graph.compile(checkpointer=saver).astream({"log": []}, config_of(stale), durability=durability):
            pass
    assert fenced == ["fenced"]
    state = await graph.compile(checkpointer=savers.reader()).aget_state(config_of(stale))
    assert len(state.values.get("log", [])) <= 2, "step 3 was executed by a stale run"
    kept = await contents(db, run.thread_id)
    with pytest.raises(Fenced):
        await saver.aput_writes(
            {"configurable": {"thread_id": run.thread_id, "checkpoint_ns": "", "checkpoint_id": "x"}}, [("c", 1)], "t"
        )
    with pytest.raises(Fenced):
        await saver.adelete_thread(run.thread_id)
    assert await contents(db, run.thread_id) == kept


async def test_a_reader_writes_nothing(savers: Checkpointers) -> None:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with pytest.raises(Fenced):
        await savers.reader().aput(config, empty_checkpoint(), {}, {})
    with pytest.raises(Fenced):
        await savers.reader().adelete_thread("t")


@pytest.mark.parametrize("kind_of_graph", [Asking, AskingInSubgraph])
async def test_restoring_leaves_the_human_question_unanswered(
    db: Database, savers: Checkpointers, kind_of_graph: type[Asking]
) -> None:
    graph = kind_of_graph()
    asked = await executed_run(db, savers, graph.build(), {"log": []})
    thread_id = asked.run.thread_id
    before = await contents(db, thread_id)
    second = await claimed(db, await stored_run(db, thread_id))
    await (
        graph.build()
        .compile(checkpointer=saver_of(savers, second))
        .ainvoke(Command(resume="yes", update={"log": ["updated"]}), config_of(second))
    )
    assert await questions(savers, graph.build(), thread_id) == ["send the money?"]
    await restore_pre_run(db, thread_id, second.epoch, second.pre_run)
    assert await contents(db, thread_id) == before
    assert await questions(savers, graph.build(), thread_id) == ["delete the file?"]

    graph.executed.clear()
    await graph.build().compile(checkpointer=saver_of(savers, second)).ainvoke(Command(resume="no"), config_of(second))
    assert await questions(savers, graph.build(), thread_id) == ["send the money?"]
    assert "yes" not in str(graph.executed)


async def test_a_second_attempt_learns_whether_the_run_left_a_checkpoint(db: Database, savers: Checkpointers) -> None:
    graph = Asking()
    asked = await executed_run(db, savers, graph.build(), {"log": []})
    run = await stored_run(db, asked.run.thread_id)
    first = await claimed(db, run)
    second = await claimed(db, run, attempt=2, holder="pod-b")
    assert (second.resume, second.pre_run) == (False, first.pre_run)
    assert second.head_ms is not None
    await (
        graph.build().compile(checkpointer=saver_of(savers, second)).ainvoke({"log": ["new input"]}, config_of(second))
    )
    third = await claimed(db, run, attempt=3, holder="pod-c")
    assert (third.resume, third.pre_run) == (True, first.pre_run)
    assert (await claimed(db, run, attempt=3, holder="pod-c")).resume
    assert third.head_ms is not None
    assert third.head_ms >= second.head_ms


async def test_restoring_a_thread_that_had_no_checkpoint_empties_it(db: Database, savers: Checkpointers) -> None:
    claim = await claimed(db, await stored_run(db))
    await Asking().build().compile(checkpointer=saver_of(savers, claim)).ainvoke({"log": ["a"]}, config_of(claim))
    await restore_pre_run(db, claim.run.thread_id, claim.epoch, claim.pre_run)
    assert not any((await contents(db, claim.run.thread_id)).values())


async def test_restoring_needs_the_lease(db: Database, savers: Checkpointers) -> None:
    run = await stored_run(db)
    stale = await claimed(db, run)
    await claimed(db, run, attempt=2, holder="pod-b")
    with pytest.raises(Fenced):
        await restore_pre_run(db, run.thread_id, stale.epoch, stale.pre_run)
    with pytest.raises(Fenced):
        await finish_rollback(
            db, run_id=run.run_id, thread_id=run.thread_id, epoch=stale.epoch, pre_run=stale.pre_run, now=NOW
        )


@pytest.mark.parametrize("by_runtime", [True, False])
async def test_a_rollback_leaves_the_thread_as_if_the_run_had_never_been(
    db: Database, savers: Checkpointers, by_runtime: bool
) -> None:
    graph = Asking()
    asked = await executed_run(db, savers, graph.build(), {"log": []})
    thread_id = asked.run.thread_id
    before = await contents(db, thread_id), (await get_thread(db, thread_id)).status
    claim = await claimed(db, await stored_run(db, thread_id))
    await graph.build().compile(checkpointer=saver_of(savers, claim)).ainvoke(Command(resume="yes"), config_of(claim))
    if by_runtime:
        for _ in range(2):
            await finish_rollback(
                db,
                run_id=claim.run.run_id,
                thread_id=thread_id,
                epoch=claim.epoch,
                pre_run=claim.pre_run,
                now=NOW,
            )
    else:
        await delete_run(db, claim.run.run_id, NOW)
    assert (await contents(db, thread_id), (await get_thread(db, thread_id)).status) == before
    again = await claimed(db, await stored_run(db, thread_id))
    assert again.run.sequence == claim.run.sequence + 1


async def test_a_fork_is_undone_too(db: Database, savers: Checkpointers) -> None:
    """A run that starts from an old checkpoint adds pending writes to that one, not to the head."""
    graph = Asking()
    asked = await executed_run(db, savers, graph.build(), {"log": []})
    thread_id = asked.run.thread_id
    reader = graph.build().compile(checkpointer=savers.reader())
    old = (await reader.aget_state(config_of(asked))).config["configurable"]["checkpoint_id"]
    await executed_run(db, savers, graph.build(), {"log": ["more"]}, thread_id)
    before = await contents(db, thread_id)
    payload = RunPayload(command=None, checkpoint={"checkpoint_id": old})
    fork = await claimed(db, await stored_run(db, thread_id, payload=payload))
    config = config_of(fork)
    config["configurable"]["checkpoint_id"] = old
    await graph.build().compile(checkpointer=saver_of(savers, fork)).ainvoke(Command(resume="yes"), config)
    assert await contents(db, thread_id) != before
    await restore_pre_run(db, thread_id, fork.epoch, fork.pre_run)
    assert await contents(db, thread_id) == before


async def test_many_graphs_and_many_rows_at_once_never_find_the_database_locked(
    db: Database, savers: Checkpointers
) -> None:
    async def whole_run() -> None:
        claim = await executed_run(db, savers, Asking().build(), {"log": []})
        await executed_run(db, savers, Asking().build(), Command(resume="a"), claim.run.thread_id)
        await savers.store.aput(("notes", claim.run.thread_id), "k", {"v": 1})
        assert (await savers.store.aget(("notes", claim.run.thread_id), "k")) is not None
        assert (await get_run(db, claim.run.run_id)).status is RunState.SUCCESS

    await asyncio.gather(*(whole_run() for _ in range(25)))


async def test_the_store_gives_back_what_was_put(savers: Checkpointers) -> None:
    await savers.store.aput(("a", "b"), "key", {"n": 1})
    await savers.store.aput(("a", "b"), "key", {"n": 2})
    item = await savers.store.aget(("a", "b"), "key")
    assert item is not None
    assert item.value == {"n": 2}
    assert [i.key for i in await savers.store.asearch(("a",))] == ["key"]
    await savers.store.adelete(("a", "b"), "key")
    assert await savers.store.aget(("a", "b"), "key") is None


async def test_a_slow_reader_of_history_does_not_hold_up_a_run(db: Database, savers: Checkpointers) -> None:
    graph = Asking()
    first = await executed_run(db, savers, graph.build(), {"log": []})
    await executed_run(db, savers, graph.build(), {"log": []}, first.run.thread_id)
    reader = graph.build().compile(checkpointer=savers.reader())
    pages = reader.aget_state_history({"configurable": {"thread_id": first.run.thread_id}})
    await anext(aiter(pages))
    await asyncio.wait_for(executed_run(db, savers, Asking().build(), {"log": []}, str(uuid4())), 5)
    assert isinstance(pages, AsyncGenerator)
    await pages.aclose()
