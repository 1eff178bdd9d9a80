"""Carries out the actions of a thread's plan, each safe to repeat. Called by `reconcile` alone.

Every write goes through `World`'s ports, and its answer into the cache, so the next look doesn't wait for the watch.
"""

import structlog

from runyard_api.conditions import RunReason
from runyard_api.errors import Invalid, NotFound, ThreadBusy
from runyard_api.internal import RunError
from runyard_api.names import system_assistant_id
from runyard_api.run import Run, payload_of
from runyard_api.states import CancelAction, RunState
from runyard_operator.runs import ends, objects, status
from runyard_operator.runs.model import (
    Action,
    Admit,
    AwaitAgent,
    Dispatch,
    End,
    EndUnheld,
    Expire,
    Forget,
    RecordEnd,
    RecordLoss,
    RecordRunning,
    Refuse,
    RunSeen,
    SettleStray,
    Stop,
    Wait,
)
from runyard_operator.runs.start import start
from runyard_operator.workqueue import Key
from runyard_operator.world import World, thread_of
from runyard_store.runs import NewRun

AT_ONCE = 0.0
TELL_WAITING_SECONDS = 5.0

log = structlog.get_logger()


async def apply(world: World, thread: Key, action: Action) -> float | None:
    """Does one action; returns the seconds after which the thread must be looked at again, or None.

    Raises KubeError or Unavailable when it couldn't be done, and then the thread is looked at again later.
    """
    match action:
        case Admit():
            return await _admit(world, action)
        case Refuse():
            return await _refuse(world, action.seen.run, action.reason, action.message)
        case RecordEnd():
            await ends.record_end(world, action)
            return AT_ONCE
        case RecordLoss():
            await ends.record_loss(world, action)
            return AT_ONCE
        case RecordRunning():
            return await _record_running(world, action.seen)
        case Stop():
            return await _stop(world, action)
        case EndUnheld():
            await ends.end_unheld(world, action)
            return AT_ONCE
        case Dispatch():
            return await _dispatch(world, thread, action)
        case Wait():
            return await _wait(world, thread, action.seen, action.message, action.reason)
        case AwaitAgent():
            return await _tell_waiting(world, action.seen, action.message, RunReason.UNKNOWN_AGENT)
        case Expire():
            await ends.expire(world, action.seen.run)
        case SettleStray():
            return await _settle_stray(world, thread, action)
        case Forget():
            world.memory.forget(action.seen.run.run_id)
            world.memory.forget_deleted(thread_of(action.seen.run), action.seen.run.run_id)
    return None


async def _admit(world: World, action: Admit) -> float | None:
    run = action.seen.run
    try:
        row = await world.rows.create(_new_run(run, action.graph_id), world.now())
    except ThreadBusy as error:
        return await _refuse(world, run, RunReason.THREAD_BUSY, error.detail)
    except (Invalid, NotFound) as error:
        return await _refuse(world, run, RunReason.INVALID_PAYLOAD, error.detail)
    log.info("run admitted", **objects.names(run), sequence=row.sequence)
    if not await objects.patch(world, run, status.admitted(run, row.sequence, world.now())):
        # Deleted meanwhile: nobody knew yet that it has a row, so its deletion cancelled nothing.
        await world.rows.finish_unheld(run.run_id, RunState.INTERRUPTED, None, world.now())
    return AT_ONCE


def _new_run(run: Run, graph_id: str) -> NewRun:
    """The row of a hand-written Run. Raises Invalid."""
    payload = payload_of(run.spec)
    return NewRun(
        run_id=run.run_id,
        thread_id=run.thread_id,
        user_id=run.user_id,
        assistant_id=run.spec.assistant_id or system_assistant_id(graph_id),
        graph_id=graph_id,
        agent_name=run.spec.agent_name,
        payload=payload,
        metadata=payload.metadata,
        multitask_strategy=run.strategy,
        on_disconnect="cancel" if run.spec.on_disconnect.wire == "cancel" else "continue",
        if_not_exists="create",
        object_uid=run.metadata.uid,
        not_before=run.spec.not_before,
    )


async def _refuse(world: World, run: Run, reason: RunReason, message: str) -> float | None:
    log.info("run refused", **objects.names(run), reason=reason.value)
    await objects.patch(world, run, status.refused(run, reason, message, world.now()))
    await objects.tell(world, run, reason.value, message, warning=reason is not RunReason.CANCELLED)
    return AT_ONCE


async def _record_running(world: World, seen: RunSeen) -> float | None:
    """Writes down where the run is executed."""
    run, held = seen.run, seen.held
    link = world.links.get(run.metadata.namespace, seen.pod or "")
    if link is None or held is None:
        return AT_ONCE
    memory = world.memory.of(run.run_id)
    memory.started = memory.started or run.status.start_time or world.now()
    log.info("run running", **objects.names(run, held.attempt), pod=link.pod.name)
    binding = status.Binding.to(link.pod, held.attempt)
    await objects.patch(world, run, status.running(run, binding, memory.started))
    return None


async def _stop(world: World, action: Stop) -> float | None:
    seen, run = action.seen, action.seen.run
    link = world.links.get(run.metadata.namespace, seen.pod or "")
    if link is None or seen.held is None:
        return world.memory.retry_in(run.run_id)
    try:
        await link.client.cancel(run.run_id, action.action, action.reason)
    except NotFound:
        return world.memory.retry_in(run.run_id)
    log.info(
        "run asked to stop", **objects.names(run, seen.held.attempt), action=action.action.value, pod=link.pod.name
    )
    world.memory.of(run.run_id).stopping = (seen.held.attempt, action.action)
    return None


async def _dispatch(world: World, thread: Key, action: Dispatch) -> float | None:
    """Starts the run on a pod, then writes that down; if it has ended by now, one patch says both."""
    seen = action.seen
    before = world.memory.of(seen.run.run_id).template
    outcome = await start(world, thread, action)
    if outcome.wait:
        return await _wait(world, thread, seen, "waits for a free slot")
    if outcome.row_gone:
        await (ends.end_not_stored(world, seen) if action.attempt == 1 else ends.copy_row(world, seen, None))
        return AT_ONCE
    if outcome.refused is not None:
        error = RunError(error=outcome.refused.reason, message=outcome.refused.detail)
        await ends.end_unheld(world, EndUnheld(seen, End(RunState.ERROR, error)))
        return AT_ONCE
    if outcome.locked:
        await _tell_waiting(world, seen, "its pod doesn't take the operator's token")
    if outcome.held is None or outcome.link is None:
        return outcome.again
    held = outcome.held
    if before not in (None, outcome.link.pod.hash8) and not seen.gone:
        note = f"attempt {action.attempt} runs on another template of the Agent than the one before"
        await objects.tell(world, seen.run, "TemplateChanged", note)
    bound = RunSeen(seen.run, gone=seen.gone, pod=outcome.link.pod.name, held=held, used=action.attempt)
    if bound.ended_on_pod:
        await ends.record_end(world, RecordEnd(bound, End(held.state, held.error, held.rolled_back)))
        return AT_ONCE
    return None if seen.gone else await _record_running(world, bound)


async def _wait(
    world: World, thread: Key, seen: RunSeen, message: str, reason: RunReason = RunReason.PENDING
) -> float | None:
    """Gives the thread its place in the queue."""
    agent = Key(thread.namespace, seen.run.spec.agent_name)
    world.links.waiting.join(agent, thread)
    world.memory.waits_for[thread] = agent
    return await _tell_waiting(world, seen, message, reason)


async def _tell_waiting(
    world: World, seen: RunSeen, message: str, reason: RunReason = RunReason.PENDING
) -> float | None:
    """Tells of a wait once it has lasted; returns the seconds until then, or None when it is told.

    That the Agent doesn't exist is in a condition too, and is taken back when it does: nothing else shows it.
    """
    memory, said = world.memory.of(seen.run.run_id), status.told(seen.run)
    if said is RunReason.UNKNOWN_AGENT:
        memory.wait_told = True
        if reason is not said and not seen.gone:
            await objects.patch(world, seen.run, status.waiting(seen.run, reason, message, world.now()))
    memory.waits_since = memory.waits_since or world.now()
    left = TELL_WAITING_SECONDS - (world.now() - memory.waits_since).total_seconds()
    if left > 0 or memory.wait_told:
        return None if memory.wait_told else left
    memory.wait_told = True
    log.info("run waits", **objects.names(seen.run), why=message)
    if not seen.gone:
        if reason is RunReason.UNKNOWN_AGENT:
            await objects.patch(world, seen.run, status.waiting(seen.run, reason, message, world.now()))
        await objects.tell(world, seen.run, "Waiting", message)
    return None


async def _settle_stray(world: World, thread: Key, action: SettleStray) -> float | None:
    """A pod has a run whose object isn't cached. If it doesn't exist either, the run was cancelled by its deletion."""
    link, run_id = world.links.get(thread.namespace, action.pod), action.held.run_id
    if link is None:
        return None
    if await objects.find(world, thread, run_id):
        return AT_ONCE
    if action.held.state.finished:
        await ends.acknowledge(link, run_id)
        world.memory.forget(run_id)
        return None
    memory = world.memory.of(run_id)
    if memory.stopping is None:
        log.info("stopping a run without an object", run=run_id, thread=thread.name, pod=action.pod)
        await link.client.cancel(run_id, CancelAction.INTERRUPT, "the Run was deleted")
        memory.stopping = (action.held.attempt, CancelAction.INTERRUPT)
    return None
