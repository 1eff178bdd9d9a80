"""Gathers what is known of one thread: objects from the cache, what pods report, how lost pods ended. Called by
`reconcile`; asks the API server only where absence from the cache would decide something.
"""

from runyard_api.internal import RunHeld
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_operator.links import PodLink
from runyard_operator.runs.model import AgentSeen, Lost, Observed, RunSeen
from runyard_operator.seen import PodView
from runyard_operator.workqueue import Key
from runyard_operator.world import World

DISRUPTIONS = frozenset({"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})
"""Why pods fail though nothing in them did."""


async def observe(world: World, thread: Key) -> Observed:
    """Everything a decision about this thread rests on. Raises KubeError when a confirmation can't be had."""
    holders = _latest(world, thread)
    runs = world.caches.runs.group("thread", thread.namespace, thread.name)
    gone = list(world.memory.deleted.get(thread, {}).values())
    seen = [await _see(world, run, holders) for run in runs]
    seen += [await _see(world, run, holders, gone=True) for run in gone]
    names = {one.run.spec.agent_name for one in seen}
    known = {one.run.run_id for one in seen}
    return Observed(
        thread=thread,
        runs=tuple(seen),
        agents={name: await _agent(world, thread, name, seen) for name in names},
        strays=tuple((link.pod.name, held) for run_id, (link, held) in holders.items() if run_id not in known),
    )


def _latest(world: World, thread: Key) -> dict[str, tuple[PodLink, RunHeld]]:
    """The pod with the highest attempt of each run; an older attempt elsewhere is fenced and reports by itself."""
    latest: dict[str, tuple[PodLink, RunHeld]] = {}
    for link, held in world.links.holding(thread):
        known = latest.get(held.run_id)
        if known is None or known[1].attempt < held.attempt:
            latest[held.run_id] = (link, held)
    return latest


async def _see(world: World, run: Run, holders: dict[str, tuple[PodLink, RunHeld]], *, gone: bool = False) -> RunSeen:
    memory = world.memory.runs.get(run.run_id)
    used = max(run.status.attempt or 0, memory.used if memory else 0)
    if (holder := holders.get(run.run_id)) is not None:
        link, held = holder
        lost = None if held.state.finished else _lost_pod(world.caches.pods.get(link.pod.namespace, link.pod.name))
        asked = memory.stopping if memory else None
        return RunSeen(
            run,
            gone=gone,
            pod=link.pod.name,
            held=held,
            lost=lost,
            stopping=asked[1] if asked and asked[0] == held.attempt else None,
            used=max(used, held.attempt),
        )
    if memory is not None and memory.unanswered is not None:
        sent = memory.unanswered
        pod = await world.confirmed_pod(run.metadata.namespace, sent.pod)
        lost = _lost_pod(pod if pod is None or pod.uid == sent.pod_uid else None, absent=True)
        return RunSeen(run, gone=gone, pod=sent.pod, unanswered=sent.attempt, lost=lost, used=max(used, sent.attempt))
    if run.state is RunState.RUNNING and run.status.pod_name is not None:
        return RunSeen(run, gone=gone, pod=run.status.pod_name, lost=await _lost_binding(world, run), used=used)
    return RunSeen(run, gone=gone, used=used, surplus=run.run_id in world.memory.surplus)


async def _lost_binding(world: World, run: Run) -> Lost | None:
    """Whether the pod in the run's status is lost to it: gone, replaced, ended, or it says that it hasn't the run."""
    name, nonce = run.status.pod_name or "", run.status.pod_nonce or ""
    if (ended := world.caches.ended_pods.get(run.metadata.namespace, name, nonce)) is not None:
        return _lost_pod(ended)
    pod = await world.confirmed_pod(run.metadata.namespace, name)
    if pod is None or pod.nonce != nonce:
        return Lost(f"pod {name} was deleted", failure=False)
    if (lost := _lost_pod(pod)) is not None:
        return lost
    link = world.links.get(pod.namespace, pod.name)
    if link is None or not link.heard:
        return None
    return Lost(f"pod {name} no longer has the run", failure=link.boots > 1)


def _lost_pod(pod: PodView | None, *, absent: bool = False) -> Lost | None:
    """Whether a pod ended. `absent`: None means that it doesn't exist, rather than that nothing is known of it."""
    if pod is None:
        return Lost("the pod was deleted", failure=False) if absent else None
    if not pod.ended:
        return None
    why = pod.container.exit_reason or pod.phase_reason or pod.phase
    code = "" if pod.container.exit_code is None else f", exit code {pod.container.exit_code}"
    disrupted = pod.deleting or pod.phase == "Succeeded" or pod.phase_reason in DISRUPTIONS
    return Lost(f"pod {pod.name} ended ({why}{code})", failure=not disrupted)


async def _agent(world: World, thread: Key, name: str, runs: list[RunSeen]) -> AgentSeen:
    """The Agent; its absence is confirmed only when an unfinished run depends on it."""
    key = Key(thread.namespace, name)
    agent = world.caches.agents.get(*key)
    if agent is None and any(r.run.spec.agent_name == key.name and not r.run.state.finished for r in runs):
        agent = await world.confirmed_agent(*key)
    return AgentSeen(
        name=key.name,
        agent=agent,
        unusable_since=world.links.unusable_since(key),
        waits_since=world.links.waiting.since(key, thread),
        hold_until=world.links.hold_until(key),
    )
