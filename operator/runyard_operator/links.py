"""One link per live agent pod: its status stream followed by a task, what it holds, its slots and a client to it.

`agents.reconcile` says which pods are live; `runs` reads what pods hold and sends commands through `client`. A change
of a run wakes its thread, a freed slot the head of the Agent's queue, a pod's first word its Agent. Calls the pods'
internal API (runyard_clients) and nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from runyard_api.errors import RunyardError
from runyard_api.internal import GraphSchemas, RunHeld, RunStart, RuntimeInfo, StatusMessage
from runyard_api.retry import pause
from runyard_api.states import CancelAction
from runyard_clients.runtime import StartAnswer
from runyard_operator.seen import PodView
from runyard_operator.slots import PodSlots, Waiting, least_loaded
from runyard_operator.workqueue import Key

RECONNECT = (0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds before the n-th attempt in a row to reach a pod's status stream; the last one repeats."""

HOLD_SECONDS = 10.0
"""How long a pod that was there before this operator is waited for before its Agent's runs are given out."""
BUSY_COALESCED = 1.0
"""Seconds after which a changed number of busy slots is looked at: many changes, one look."""

SILENCE_COALESCED = 1.0
"""Seconds after which a pod that broke off is shown as not ready: most are back by then."""

QUEUE_COALESCED = 0.1
"""Seconds after which a queue that has grown or is empty is looked at: pods may be missing or too many."""

log = structlog.get_logger()


class Runtime(Protocol):
    """What the operator asks of a pod; `runyard_clients.runtime.RuntimeClient` is one."""

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer: ...
    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None: ...
    async def ack(self, run_id: str) -> None: ...
    def status(self) -> AsyncGenerator[StatusMessage, None]: ...
    async def info(self) -> RuntimeInfo: ...
    async def schemas(self, graph_id: str) -> GraphSchemas: ...


@dataclass
class PodLink:
    """What is known of one pod from itself. `heard`: its first snapshot is in. `boots`: lives of its server.
    `connected`: its status stream is open, since `connected_since`. `retired`: it gets no new runs, for it is to go.
    `outdated`: the Agent's template is another by now."""

    pod: PodView
    client: Runtime
    slots: PodSlots = field(default_factory=PodSlots)
    heard: bool = False
    connected: bool = False
    connected_since: datetime | None = None
    draining: bool = False
    retired: bool = False
    outdated: bool = False
    boot_id: str = ""
    boots: int = 0
    graphs: tuple[str, ...] = ()
    held: dict[str, RunHeld] = field(default_factory=dict)
    noted: dict[str, float] = field(default_factory=dict)
    unheard_since: datetime | None = None
    task: asyncio.Task[None] | None = None

    @property
    def agent(self) -> Key:
        return Key(self.pod.namespace, self.pod.agent)

    @property
    def usable(self) -> bool:
        """Takes new runs."""
        leaving = self.draining or self.retired or self.pod.draining or self.pod.deleting
        return self.connected and not leaving and not self.slots.spent

    def hold(self, run: RunHeld, at: float) -> None:
        """Notes a run that the pod reported, by stream or as an answer, which ends its reservation; an older attempt
        changes nothing."""
        known = self.held.get(run.run_id)
        if known is not None and (known.attempt > run.attempt or (known.state.finished and not run.state.finished)):
            return
        self.held[run.run_id] = run
        self.noted[run.run_id] = at
        self._count(run)

    def drop(self, run_id: str) -> None:
        self.held.pop(run_id, None)
        self.noted.pop(run_id, None)
        self.slots.running.discard(run_id)

    def _count(self, run: RunHeld) -> None:
        if run.state.finished:
            self.slots.reserved.discard(run.run_id)
            self.slots.running.discard(run.run_id)
        else:
            self.slots.run(run.run_id)


class Links:
    """The links of all live pods, by (namespace, pod name)."""

    def __init__(
        self,
        *,
        connect: Callable[[PodView], Runtime],
        wake_thread: Callable[[Key], None],
        wake_agent: Callable[[Key, float], None],
        now: Callable[[], datetime],
    ) -> None:
        self.waiting = Waiting(now=now, changed=lambda agent: wake_agent(agent, QUEUE_COALESCED))
        self._connect = connect
        self._wake_thread = wake_thread
        self._wake_agent = wake_agent
        self._now = now
        self._links: dict[tuple[str, str], PodLink] = {}
        self._unusable_since: dict[Key, datetime] = {}
        self._began = now()

    def __iter__(self) -> Iterator[PodLink]:
        return iter(list(self._links.values()))

    def get(self, namespace: str, pod: str) -> PodLink | None:
        return self._links.get((namespace, pod))

    def of_agent(self, agent: Key) -> list[PodLink]:
        return [link for link in self._links.values() if link.agent == agent]

    def holding(self, thread: Key) -> list[tuple[PodLink, RunHeld]]:
        """All runs of a thread that pods report."""
        return [
            (link, run)
            for link in self._links.values()
            if link.pod.namespace == thread.namespace
            for run in link.held.values()
            if run.thread_id == thread.name
        ]

    def open(self, pod: PodView, *, took_over: bool = False) -> PodLink:
        """Follows a live pod from now on; of one that is followed already, notes the newer view.

        `took_over`: the pod was running before this operator was, so it may hold runs that only it knows of.
        """
        place = (pod.namespace, pod.name)
        link = self._links.get(place)
        if link is not None and link.pod.uid == pod.uid:
            link.pod = pod
            return link
        if link is not None:
            self.close(link.pod)
        link = PodLink(pod, self._connect(pod), unheard_since=self._now() if took_over else None)
        link.task = asyncio.get_running_loop().create_task(self._follow(link), name=f"status of {pod.name}")
        self._links[place] = link
        return link

    def close(self, pod: PodView) -> None:
        """Stops following a pod that is gone, and wakes the threads whose runs it had."""
        link = self._links.get((pod.namespace, pod.name))
        if link is None or link.pod.uid != pod.uid:
            return
        del self._links[(pod.namespace, pod.name)]
        if link.task is not None:
            link.task.cancel()
        self._note_usable(link.agent)
        for run in link.held.values():
            self._wake_thread(Key(pod.namespace, run.thread_id))
        self.wake_waiting(link.agent)

    async def stop(self) -> None:
        tasks = [link.task for link in self._links.values() if link.task is not None]
        self._links.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reserve(
        self, agent: Key, thread: Key, run_id: str, *, graph_id: str | None = None, template: str | None = None
    ) -> PodLink | None:
        """Takes a free slot for a run on the least loaded usable pod. None: there is none; it has a place in line.

        Pods that serve `graph_id` come into question, if there is one; among them first those of `template` (None: of
        the Agent's present one), then the others.
        """
        usable = [link for link in self.of_agent(agent) if link.usable]
        serving = [link for link in usable if graph_id in link.graphs] or usable
        pods = {link.pod.name: link for link in serving}
        free = sum(link.slots.free for link in pods.values())
        first = {n: one for n, one in pods.items() if one.pod.hash8 == template or not (template or one.outdated)}
        name = least_loaded((n, one.slots) for n, one in first.items())
        name = name or least_loaded((n, one.slots) for n, one in pods.items())
        if name is None or not self.waiting.may_take(agent, thread, free):
            self.waiting.join(agent, thread)
            return None
        self.waiting.leave(agent, thread)
        pods[name].slots.reserve(run_id)
        return pods[name]

    def release(self, link: PodLink, run_id: str) -> None:
        """Gives a reservation back."""
        link.slots.reserved.discard(run_id)
        self.wake_waiting(link.agent)

    def wake_waiting(self, agent: Key) -> None:
        """Wakes as many waiting threads as slots are free."""
        free = sum(link.slots.free for link in self.of_agent(agent) if link.usable)
        for thread in self.waiting.front(agent, free):
            self._wake_thread(thread)

    def wake_all_waiting(self, agent: Key) -> None:
        """Wakes every waiting thread: something changed for all of them."""
        for thread in self.waiting.front(agent, 1_000_000):
            self._wake_thread(thread)

    def hold_until(self, agent: Key) -> datetime | None:
        """Until when a pod that ran before this operator may still tell what it runs; None: there is none such."""
        unheard = [link.unheard_since for link in self.of_agent(agent) if link.unheard_since is not None]
        return min(unheard) + timedelta(seconds=HOLD_SECONDS) if unheard else None

    def unusable_since(self, agent: Key) -> datetime | None:
        """Since when no pod of the Agent takes runs (at the earliest: since this operator began); None if one does, or
        if pods that took what they may are at work: then a run waits for a slot as in any queue."""
        if any(link.usable or (link.connected and link.slots.spent) for link in self.of_agent(agent)):
            return None
        return self._unusable_since.get(agent, self._began)

    async def _follow(self, link: PodLink) -> None:
        failures = 0
        while True:
            opened = asyncio.get_running_loop().time()
            try:
                async with aclosing(link.client.status()) as messages:
                    async for message in messages:
                        failures = 0
                        await self._take(link, message, opened)
            except RunyardError as error:
                log.debug("no status from pod", pod=link.pod.name, error=error.detail)
            except Exception:
                log.warning("status of pod not understood", pod=link.pod.name, exc_info=True)
            self._deaf(link, failures)
            await asyncio.sleep(pause(RECONNECT, failures + 1))
            failures += 1

    def _deaf(self, link: PodLink, failures: int) -> None:
        """It takes no runs until it speaks again. One that can't be reached for a while holds no run that only it knows
        of, or the lease will tell."""
        if link.connected:
            link.connected, link.connected_since = False, None
            self._note_usable(link.agent)
            self._wake_agent(link.agent, SILENCE_COALESCED)
        if failures == len(RECONNECT) and link.unheard_since is not None:
            link.unheard_since = None
            self.wake_all_waiting(link.agent)
            self._wake_agent(link.agent, 0.0)

    async def _take(self, link: PodLink, message: StatusMessage, opened: float) -> None:
        if message.kind == "snapshot":
            if message.boot_id != link.boot_id or not link.graphs:
                link.graphs = (await link.client.info()).graphs
            self._snapshot(link, message, opened)
        for run in message.runs:
            self._run(link, run)
        was_leaving, was_free = (link.draining, link.slots.spent), link.slots.free
        link.draining, link.slots.capacity, link.slots.left = message.draining, message.slots, message.left
        link.slots.full = False
        if link.slots.free != was_free or message.kind != "beat":
            self.wake_waiting(link.agent)
        if message.kind == "snapshot" or was_leaving != (link.draining, link.slots.spent):
            self._note_usable(link.agent)
            self._wake_agent(link.agent, 0.0)
        elif message.kind == "run":
            self._wake_agent(link.agent, BUSY_COALESCED)

    def _snapshot(self, link: PodLink, message: StatusMessage, opened: float) -> None:
        """Drops what the pod no longer has. A run noted after the stream was opened may be too young to be in it."""
        first = not link.heard
        if message.boot_id != link.boot_id:
            link.boot_id = message.boot_id
            link.boots += 1
        reported = {run.run_id for run in message.runs}
        for run_id in [r for r, at in link.noted.items() if r not in reported and at < opened]:
            thread = link.held[run_id].thread_id
            link.drop(run_id)
            self._wake_thread(Key(link.pod.namespace, thread))
        link.heard, link.connected, link.unheard_since = True, True, None
        link.connected_since = link.connected_since or self._now()
        if first:
            log.info("pod joined", pod=link.pod.name, agent=link.pod.agent, slots=message.slots, held=len(reported))
            self.wake_all_waiting(link.agent)

    def _run(self, link: PodLink, run: RunHeld) -> None:
        if run.given_up is not None:
            link.drop(run.run_id)
        else:
            link.hold(run, asyncio.get_running_loop().time())
        self._wake_thread(Key(link.pod.namespace, run.thread_id))

    def _note_usable(self, agent: Key) -> None:
        if any(link.usable for link in self.of_agent(agent)):
            self._unusable_since.pop(agent, None)
        else:
            self._unusable_since.setdefault(agent, self._now())
