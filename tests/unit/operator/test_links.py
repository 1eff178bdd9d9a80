"""Links to pods, on fake time: what a pod reports, when it takes runs, what is remembered of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.support.fake_time import run_in_fake_time
from tests.unit.operator.builders import NAMESPACE, THREAD, held, pod
from tests.unit.operator.fakes import now

from runyard_api.errors import Unavailable
from runyard_api.internal import GraphSchemas, RunHeld, RunStart, RuntimeInfo, StatusMessage
from runyard_api.states import CancelAction, RunState
from runyard_clients.runtime import StartAnswer
from runyard_operator.links import HOLD_SECONDS, Links, PodLink
from runyard_operator.workqueue import Key

AGENT, THREAD_KEY = Key(NAMESPACE, "hello"), Key(NAMESPACE, THREAD)


@dataclass
class ScriptedPod:
    """A pod whose status stream says what the test puts in; None breaks it off. `refuses`: nobody listens."""

    says: "asyncio.Queue[StatusMessage | None]" = field(default_factory=asyncio.Queue)
    refuses: bool = False
    opened: int = 0

    async def status(self) -> AsyncGenerator[StatusMessage, None]:
        if self.refuses:
            raise Unavailable("refused")
        self.opened += 1
        while (message := await self.says.get()) is not None:
            yield message
        raise Unavailable("broken off")

    async def schemas(self, graph_id: str) -> GraphSchemas:
        return GraphSchemas(graph_id=graph_id)

    async def info(self) -> RuntimeInfo:
        return RuntimeInfo(boot_id="b1", slots=2, graphs=("echo",), versions={})

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer:
        raise Unavailable("not asked here")

    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None: ...

    async def ack(self, run_id: str) -> None: ...

    def say(self, kind: Any, *runs: RunHeld, **facts: Any) -> None:
        self.says.put_nowait(StatusMessage(kind=kind, **{"boot_id": "b1", "slots": 2, "busy": 0, "runs": runs} | facts))


class Woken:
    """Links to one scripted pod; `threads` and `agents` that were woken."""

    def __init__(self, *, took_over: bool = False, refuses: bool = False) -> None:
        self.pod = ScriptedPod(refuses=refuses)
        self.threads: list[Key] = []
        self.agents: list[Key] = []
        self.links = Links(
            connect=lambda _: self.pod,
            wake_thread=self.threads.append,
            wake_agent=lambda key, _: self.agents.append(key),
            now=now,
        )
        self.link: PodLink = self.links.open(pod(), took_over=took_over)

    async def later(self, seconds: float = 0.01) -> None:
        await asyncio.sleep(seconds)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_fake_time(scenario())


def test_a_pod_takes_runs_from_its_first_snapshot_on() -> None:
    async def scenario() -> None:
        stage = Woken()
        await stage.later()
        assert not stage.link.usable
        assert stage.links.unusable_since(AGENT) is not None
        stage.pod.say("snapshot", held())
        await stage.later()
        assert (stage.link.usable, stage.link.graphs, stage.link.slots.free) == (True, ("echo",), 1)
        assert stage.links.unusable_since(AGENT) is None
        assert THREAD_KEY in stage.threads
        assert AGENT in stage.agents

    play(scenario)


def test_a_pod_that_drains_or_broke_off_takes_no_runs_until_it_says_otherwise() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot")
        stage.pod.say("beat", draining=True)
        await stage.later()
        assert not stage.link.usable
        stage.pod.say("beat")
        await stage.later()
        assert stage.link.usable
        stage.pod.says.put_nowait(None)
        await stage.later()
        assert not stage.link.usable
        stage.pod.say("snapshot")
        await stage.later(1)
        assert (stage.link.usable, stage.pod.opened) == (True, 2)

    play(scenario)


def test_a_run_that_a_new_snapshot_does_not_have_is_dropped_and_its_thread_woken() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot", held())
        await stage.later()
        stage.pod.says.put_nowait(None)
        await stage.later(1)
        stage.threads.clear()
        stage.pod.say("snapshot", boot_id="b2")
        await stage.later()
        assert (stage.link.held, stage.link.boots) == ({}, 2)
        assert stage.threads == [THREAD_KEY]

    play(scenario)


def test_a_run_taken_after_the_stream_was_opened_may_be_too_young_for_the_snapshot() -> None:
    async def scenario() -> None:
        stage = Woken()
        await stage.later()
        stage.link.hold(held(), asyncio.get_running_loop().time())
        stage.pod.say("snapshot")
        await stage.later()
        assert "r1" in stage.link.held

    play(scenario)


def test_news_of_an_older_attempt_or_of_before_the_end_changes_nothing() -> None:
    link = PodLink(pod(), ScriptedPod())
    link.hold(held(attempt=2), 0)
    link.hold(held(attempt=1, state=RunState.ERROR), 1)
    assert (link.held["r1"].attempt, link.slots.running) == (2, {"r1"})
    link.hold(held(attempt=2, state=RunState.SUCCESS), 2)
    link.hold(held(attempt=2), 3)
    assert (link.held["r1"].state, link.slots.running) == (RunState.SUCCESS, set())


def test_an_attempt_that_gave_up_is_not_held_any_more() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot", held())
        stage.pod.say("run", held(given_up="drained"))
        await stage.later()
        assert stage.link.held == {}

    play(scenario)


def test_a_freed_slot_wakes_the_thread_that_waited_longest() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot", held("a"), held("b"))
        await stage.later()
        first, second = Key(NAMESPACE, "t1"), Key(NAMESPACE, "t2")
        assert stage.links.reserve(AGENT, first, "c") is None
        assert stage.links.reserve(AGENT, second, "d") is None
        stage.threads.clear()
        stage.pod.say("run", held("a", RunState.SUCCESS))
        await stage.later()
        assert first in stage.threads
        assert second not in stage.threads
        assert stage.links.reserve(AGENT, second, "d") is None
        assert stage.links.reserve(AGENT, first, "c") is stage.link
        assert stage.link.slots.free == 0

    play(scenario)


def test_a_pod_that_said_it_is_full_is_asked_again_after_its_next_word() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot")
        await stage.later()
        stage.link.slots.full = True
        assert stage.links.reserve(AGENT, THREAD_KEY, "r1") is None
        stage.threads.clear()
        stage.pod.say("beat")
        await stage.later()
        assert stage.threads == [THREAD_KEY]
        assert stage.links.reserve(AGENT, THREAD_KEY, "r1") is stage.link

    play(scenario)


def test_a_pod_that_was_there_before_is_waited_for_but_not_if_nobody_listens_there() -> None:
    async def scenario() -> None:
        stage = Woken(took_over=True)
        since = now()
        until = stage.links.hold_until(AGENT)
        assert until is not None
        assert (until - since).total_seconds() == HOLD_SECONDS
        stage.pod.say("snapshot")
        await stage.later()
        assert stage.links.hold_until(AGENT) is None
        silent = Woken(took_over=True, refuses=True)
        assert silent.links.hold_until(AGENT) is not None
        await stage.later(HOLD_SECONDS)
        assert silent.links.hold_until(AGENT) is None

    play(scenario)


def test_closing_a_link_wakes_the_threads_whose_runs_the_pod_had() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot", held())
        await stage.later()
        stage.threads.clear()
        stage.links.close(pod())
        assert stage.threads == [THREAD_KEY]
        assert stage.links.get(NAMESPACE, "hello-0") is None
        assert stage.links.unusable_since(AGENT) == now()

    play(scenario)


class Templates:
    """An Agent with a pod of an older template and one of the present one, each with two slots."""

    def __init__(self) -> None:
        self.pods = {"hello-old-0": ScriptedPod(), "hello-new-0": ScriptedPod()}
        self.links = Links(
            connect=lambda pod: self.pods[pod.name],
            wake_thread=lambda _: None,
            wake_agent=lambda *_: None,
            now=now,
        )
        self.old, self.new = (self.links.open(pod(f"hello-{t}-0", hash8=t)) for t in ("old", "new"))
        self.old.outdated = True

    async def speak(self) -> None:
        for one in self.pods.values():
            one.say("snapshot")
        await asyncio.sleep(0.01)

    def reserve(self, number: int, **wish: Any) -> PodLink | None:
        return self.links.reserve(AGENT, Key(NAMESPACE, f"t{number}"), f"r{number}", **wish)


def test_runs_begin_on_the_present_template_and_on_an_older_one_only_when_that_is_full() -> None:
    async def scenario() -> None:
        stage = Templates()
        await stage.speak()
        assert [stage.reserve(n) for n in range(4)] == [stage.new, stage.new, stage.old, stage.old]
        assert stage.reserve(4) is None

    play(scenario)


def test_a_run_that_lost_its_pod_goes_on_with_its_own_template_if_it_can() -> None:
    async def scenario() -> None:
        stage = Templates()
        await stage.speak()
        assert [stage.reserve(n, template="old") for n in range(3)] == [stage.old, stage.old, stage.new]

    play(scenario)


def test_a_run_goes_to_a_pod_that_serves_its_graph() -> None:
    async def scenario() -> None:
        stage = Templates()
        await stage.speak()
        stage.new.graphs = ("echo", "added")
        stage.old.graphs = ("echo",)
        assert [stage.reserve(n, graph_id="added") for n in range(3)] == [stage.new, stage.new, None]
        stage.links.waiting.leave(AGENT, Key(NAMESPACE, "t2"))
        assert stage.reserve(3, graph_id="echo") is stage.old
        assert stage.reserve(4, graph_id="gone") is stage.old, "a pod tells the run that there is no such graph"

    play(scenario)


def test_a_pod_that_took_as_many_runs_as_it_may_takes_no_more() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot", left=1)
        await stage.later()
        assert stage.link.usable
        stage.agents.clear()
        stage.pod.say("run", held("r1"), left=0)
        await stage.later()
        assert (stage.link.usable, stage.agents) == (False, [AGENT])

    play(scenario)


def test_a_run_that_a_pod_reports_needs_no_reservation_any_more() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot")
        await stage.later()
        assert stage.links.reserve(AGENT, THREAD_KEY, "r1") is stage.link
        stage.pod.say("run", held("r1"))
        await stage.later()
        assert (stage.link.slots.reserved, stage.link.slots.busy) == (set(), 1)
        stage.pod.say("run", held("r1", RunState.SUCCESS))
        await stage.later()
        assert stage.link.slots.busy == 0

    play(scenario)


def test_behind_pods_that_took_what_they_may_a_run_waits_as_in_any_queue() -> None:
    async def scenario() -> None:
        stage = Woken()
        stage.pod.say("snapshot", held("r1"), left=0)
        await stage.later()
        assert not stage.link.usable
        assert stage.links.unusable_since(AGENT) is None

    play(scenario)
