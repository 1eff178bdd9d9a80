"""Where a thread's state comes from when its row can't tell it: a stand-in for the agent's pod says so."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.store_rows import claimed, finish_of, later, stored_run

from runyard_api.errors import Unavailable
from runyard_api.internal import HistoryQuery, StateQuery
from runyard_api.states import RunState
from runyard_api.wire import HistoryRead
from runyard_gateway.state import ThreadStates
from runyard_gateway.views import thread_view
from runyard_store.database import Database
from runyard_store.finish import finish_run
from runyard_store.runs import finish_unheld
from runyard_store.threads import ThreadRow, get_thread

ASKED = [{"value": "well?", "id": "i"}]
NEWER: dict[str, Any] = {
    "values": {"answer": 43},
    "next": ["work"],
    "tasks": [{"id": "t1", "interrupts": ASKED}, {"id": "t2", "interrupts": []}],
    "checkpoint": {"checkpoint_id": "c9"},
}


@dataclass
class OnePod:
    """Runs with one pod, or none when it is `away`."""

    away: bool = False
    says: dict[str, Any] = field(default_factory=lambda: NEWER)
    asked: list[str] = field(default_factory=list)

    async def endpoint(self, agent_name: str) -> Any:
        if self.away:
            raise Unavailable("no pod")
        return self

    async def state(self, thread_id: str, query: StateQuery) -> dict[str, Any]:
        self.asked.append("state")
        return self.says

    async def history(self, thread_id: str, query: HistoryQuery) -> list[dict[str, Any]]:
        self.asked.append("history")
        return [NEWER]


async def ended_thread(db: Database, *, unheld: bool) -> ThreadRow:
    """A thread whose last run was finished by its pod, or after that pod was lost."""
    first = await stored_run(db)
    await finish_run(db, finish_of(await claimed(db, first)))
    if unheld:
        lost = await stored_run(db, first.thread_id)
        await claimed(db, lost)
        await finish_unheld(db, lost.run_id, RunState.ERROR, {"error": "TooManyFailures", "message": "m"}, later(3))
    return await get_thread(db, first.thread_id)


def states(db: Database, pod: OnePod) -> ThreadStates:
    runs: Any = pod
    return ThreadStates(db, runs)


async def test_a_known_head_answers_without_a_pod(db: Database) -> None:
    pod = OnePod(away=True)
    thread = await ended_thread(db, unheld=False)
    assert (await states(db, pod).current(thread, subgraphs=False))["values"] == {"answer": 42}
    assert [s["values"] for s in await states(db, pod).history(thread, HistoryRead(limit=1))] == [{"answer": 42}]


async def test_runs_that_wait_dont_hide_the_row_but_one_at_work_is_asked_for_its_state(db: Database) -> None:
    pod = OnePod()
    thread = await ended_thread(db, unheld=False)
    waiting = await stored_run(db, thread.thread_id)
    fresh = await stored_run(db)
    busy = await get_thread(db, thread.thread_id)
    assert busy.status == "busy"
    assert (await states(db, pod).current(busy, subgraphs=False))["values"] == {"answer": 42}
    assert [s["values"] for s in await states(db, pod).history(busy, HistoryRead(limit=1))] == [{"answer": 42}]
    assert await states(db, pod).history(await get_thread(db, fresh.thread_id), HistoryRead(limit=10)) == []
    assert pod.asked == []
    await claimed(db, waiting)
    assert (await states(db, pod).current(busy, subgraphs=False))["values"] == {"answer": 43}
    assert [s["values"] for s in await states(db, pod).history(busy, HistoryRead(limit=1))] == [{"answer": 43}]
    assert pod.asked == ["state", "history"]


async def test_an_unknown_head_is_asked_of_a_pod_once(db: Database) -> None:
    pod = OnePod()
    thread = await ended_thread(db, unheld=True)
    assert thread_view(thread)["values"] is None, "nothing older is shown"
    assert [s["values"] for s in await states(db, pod).history(thread, HistoryRead(limit=1))] == [{"answer": 43}]
    assert (await states(db, pod).current(thread, subgraphs=False))["values"] == {"answer": 43}
    assert pod.asked == ["history", "state"]
    learned = await get_thread(db, thread.thread_id)
    view = thread_view(learned)
    assert (view["values"], view["interrupts"], view["status"]) == ({"answer": 43}, {"t1": ASKED}, "error")
    pod.away = True
    assert await states(db, pod).known(learned) == learned
    assert (await states(db, pod).current(learned, subgraphs=False))["next"] == ["work"]


async def test_a_head_read_while_a_run_is_at_work_is_shown_but_not_kept(db: Database) -> None:
    thread = await ended_thread(db, unheld=True)
    await claimed(db, await stored_run(db, thread.thread_id))
    thread = await get_thread(db, thread.thread_id)
    view = thread_view(await states(db, OnePod()).known(thread))
    assert (view["values"], view["interrupts"], view["status"]) == ({"answer": 43}, {"t1": ASKED}, "busy")
    assert await get_thread(db, thread.thread_id) == thread


async def test_a_run_that_was_lost_before_its_first_checkpoint_left_no_state(db: Database) -> None:
    lost = await stored_run(db)
    await claimed(db, lost)
    await finish_unheld(db, lost.run_id, RunState.INTERRUPTED, None, later(3))
    thread = await get_thread(db, lost.thread_id)
    pod = OnePod(says={**NEWER, "values": {}, "next": [], "tasks": [], "checkpoint": None})
    known = await states(db, pod).known(thread)
    assert (known.head, known.values, known.status) == (None, None, "idle")


async def test_an_unknown_head_is_unavailable_without_a_pod_even_while_a_run_waits(db: Database) -> None:
    pod = OnePod(away=True)
    resting = await ended_thread(db, unheld=True)
    await stored_run(db, resting.thread_id)
    for thread in (resting, await get_thread(db, resting.thread_id)):
        with pytest.raises(Unavailable):
            await states(db, pod).current(thread, subgraphs=False)
        with pytest.raises(Unavailable):
            await states(db, pod).known(thread)
