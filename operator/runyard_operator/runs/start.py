"""Gives a run to a pod: reserves a slot, asks, and reads the answer. Called by `apply`.

The request is idempotent and the pod's claim of the thread's lease is what counts; a request without an answer is
repeated at the same pod until it answers or is lost, because it may be executing the run.
"""

import asyncio
from dataclasses import dataclass

import structlog

from runyard_api.dispatch import Refusal, refusal_of
from runyard_api.errors import Draining, NoSlot, RunyardError, Unauthenticated
from runyard_api.internal import RunHeld, RunStart
from runyard_operator.links import PodLink
from runyard_operator.runs.memory import RunMemory, Unanswered
from runyard_operator.runs.model import Dispatch
from runyard_operator.workqueue import Key
from runyard_operator.world import World

log = structlog.get_logger()


@dataclass(frozen=True)
class Outcome:
    """What became of a dispatch. `held`: the pod at `link` has it (or knows its end). `wait`: no slot is free.
    `row_gone`: there is no such run any more. `refused`: no pod would answer this request otherwise. `locked`: the pod
    doesn't take our token. `again`: seconds until the next try."""

    link: PodLink | None = None
    held: RunHeld | None = None
    wait: bool = False
    row_gone: bool = False
    refused: RunyardError | None = None
    locked: bool = False
    again: float | None = None


async def start(world: World, thread: Key, action: Dispatch) -> Outcome:
    """Tries pod after pod until one takes the run or none is left. Raises what a pod answered unexpectedly."""
    run = action.seen.run
    agent = Key(thread.namespace, run.spec.agent_name)
    while True:
        if action.pod is not None:
            link = world.links.get(thread.namespace, action.pod)
            if link is None:
                return Outcome(again=world.memory.retry_in(run.run_id))
        else:
            template = world.memory.of(run.run_id).template
            link = world.links.reserve(agent, thread, run.run_id, graph_id=run.spec.graph_id, template=template)
            if link is None:
                return Outcome(wait=True)
        outcome = await _ask(world, link, action)
        if outcome is not None:
            return outcome
        if action.pod is not None:
            return Outcome(again=0.0)


async def _ask(world: World, link: PodLink, action: Dispatch) -> Outcome | None:
    """Asks one pod; None means that it takes no run now and another may."""
    run = action.seen.run
    run_id, memory = run.run_id, world.memory.of(run.run_id)
    memory.unanswered = Unanswered(link.pod.name, link.pod.uid, action.attempt)
    request = RunStart(
        thread_id=run.thread_id,
        graph_id=run.spec.graph_id or "",
        attempt=action.attempt,
        active_deadline_seconds=action.deadline_seconds,
    )
    try:
        answer = await link.client.start_run(run_id, request)
    except RunyardError as error:
        return await _refused(world, link, action, error)
    memory.unanswered, memory.used, memory.retries, memory.template = None, action.attempt, 0, link.pod.hash8
    memory.started = memory.started or run.status.start_time or world.now()
    if answer.started and run_id not in link.held:
        link.slots.took_one()
    link.hold(answer.run, asyncio.get_running_loop().time())
    link.slots.reserved.discard(run_id)
    return Outcome(link=link, held=link.held[run_id])


async def _refused(world: World, link: PodLink, action: Dispatch, error: RunyardError) -> Outcome | None:
    """What follows from a refusal. Raises one that says nothing about the run."""
    run_id = action.seen.run.run_id
    memory, meaning = world.memory.of(run_id), refusal_of(error)
    if meaning is Refusal.SILENT:
        delay = world.memory.retry_in(run_id)
        log.info("pod gave no answer", run=run_id, attempt=action.attempt, pod=link.pod.name, why=error.detail)
        return Outcome(again=delay)
    memory.unanswered = None
    if meaning is Refusal.FULL:
        link.slots.full = isinstance(error, NoSlot)
        link.draining = isinstance(error, Draining)
    world.links.release(link, run_id)
    match meaning:
        case Refusal.FULL:
            return None
        case Refusal.EARLY:
            log.debug("pod can't claim the thread yet", run=run_id, attempt=action.attempt, why=error.reason)
            return Outcome(again=world.memory.retry_in(run_id))
        case Refusal.STALE:
            return await _catch_up(world, run_id, action.attempt, memory)
        case Refusal.GONE:
            return Outcome(row_gone=True)
        case Refusal.WRONG:
            return Outcome(refused=error)
    if isinstance(error, Unauthenticated):
        log.warning("pod doesn't take our token", run=run_id, attempt=action.attempt, pod=link.pod.name)
        return Outcome(locked=True, again=world.memory.retry_in(run_id))
    raise error


async def _catch_up(world: World, run_id: str, attempt: int, memory: RunMemory) -> Outcome:
    """An attempt was used up before this operator knew of it: the row tells how far they got."""
    row = await world.rows.get(run_id)
    if row is None:
        return Outcome(row_gone=True)
    if row.attempt < attempt:
        return Outcome(again=world.memory.retry_in(run_id))
    memory.used = row.attempt
    return Outcome(again=0.0)
