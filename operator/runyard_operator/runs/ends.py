"""How runs end, are lost and expire: the row first where no runtime did it, then the object. Called by `apply`."""

from dataclasses import replace

import structlog

from runyard_api.conditions import RunReason
from runyard_api.crd import Manifest
from runyard_api.errors import NotFound
from runyard_api.internal import RunError
from runyard_api.names import template_hash_of
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_operator.links import PodLink
from runyard_operator.runs import objects, status
from runyard_operator.runs.model import End, EndUnheld, RecordEnd, RecordLoss, RunSeen
from runyard_operator.world import World, thread_of
from runyard_store.runs import RunRow

log = structlog.get_logger()


async def record_end(world: World, action: RecordEnd) -> None:
    """Copies what a pod reports to the object, then acknowledges it; the patch is skipped if it was made before."""
    seen = action.seen
    assert seen.held is not None
    assert seen.pod is not None
    link = world.links.get(seen.run.metadata.namespace, seen.pod)
    if not seen.gone and not seen.run.state.finished:
        unwritten = link if seen.run.status.attempt != seen.held.attempt else None
        await _write_end(world, seen, await _timed(world, seen, action.end), ran_on=unwritten)
    if link is not None:
        await acknowledge(link, seen.run.run_id)
    _finished(world, seen)


async def acknowledge(link: PodLink, run_id: str) -> None:
    """Tells the pod that the end is recorded; a pod that doesn't know the run needs no telling."""
    try:
        await link.client.ack(run_id)
    except NotFound:
        log.debug("pod had forgotten the run", run=run_id, pod=link.pod.name)
    link.drop(run_id)


async def end_unheld(world: World, action: EndUnheld) -> None:
    """Ends a run that no pod holds: in the row, then in the object. Rolled back, both go."""
    run, end = action.seen.run, action.end
    if end.rolled_back:
        await world.rows.delete(run.run_id, world.now())
        await copy_row(world, action.seen, None)
        return
    error = end.error.model_dump() if end.error else None
    row = await world.rows.finish_unheld(run.run_id, end.state, error, world.now())
    await copy_row(world, action.seen, row, reason=end.reason)


async def copy_row(world: World, seen: RunSeen, row: RunRow | None, *, reason: RunReason | None = None) -> None:
    """The object follows the row, which may have ended otherwise; without a row there is no run, so no object."""
    if not seen.gone:
        end = End(RunState.INTERRUPTED, rolled_back=True) if row is None else _end_of(row, reason)
        await _write_end(world, seen, end)
    _finished(world, seen)


async def end_not_stored(world: World, seen: RunSeen) -> None:
    """A Run that names a place in its thread without having one: a person wrote it so, or its record was deleted."""
    if not seen.gone:
        message = "the database has no run of this name; leave out spec.sequence in a Run written by hand"
        error = RunError(error=RunReason.NOT_STORED.value, message=message)
        await _write_end(world, seen, End(RunState.ERROR, error, reason=RunReason.NOT_STORED))
    _finished(world, seen)


async def record_loss(world: World, action: RecordLoss) -> None:
    """Unbinds a run from its lost pod and counts the failure, unless the row says that the run had ended by then."""
    seen, run = action.seen, action.seen.run
    attempt = seen.unanswered or max(seen.used, 1)
    row = await world.rows.get(run.run_id)
    if row is None or row.status.finished:
        await copy_row(world, seen, row)
        return
    log.info("run lost its pod", **objects.names(run, attempt), pod=seen.pod, why=action.lost.message)
    if seen.gone:
        world.memory.unbind_deleted(thread_of(run), run)
    else:
        failures = (run.status.failures or 0) + int(action.lost.failure)
        await objects.patch(world, run, status.unbound(run, attempt, failures, world.now()))
        await objects.tell(world, run, "PodLost", f"attempt {attempt}: {action.lost.message}", warning=True)
    memory = world.memory.of(run.run_id)
    memory.unanswered, memory.used, memory.stopping = None, attempt, None
    memory.template = memory.template or template_hash_of(seen.pod or "")
    link = world.links.get(run.metadata.namespace, seen.pod or "")
    if link is not None:
        link.drop(run.run_id)
        world.links.release(link, run.run_id)


async def expire(world: World, run: Run) -> None:
    """Deletes a finished object, after its end is in the row for sure: the row is what stays."""
    row = await world.rows.get(run.run_id)
    if row is not None and not row.status.finished:
        error = run.status.error.model_dump() if run.status.error else None
        await world.rows.finish_unheld(run.run_id, run.state, error, world.now())
    await objects.delete(world, run)
    world.memory.forget(run.run_id)


async def _write_end(world: World, seen: RunSeen, end: End, *, ran_on: PodLink | None = None) -> None:
    """One patch; with `ran_on` it also says where the run ran, which was never written. A run that was rolled back has
    no row any more, so its object goes."""
    run = seen.run
    if end.rolled_back:
        log.info("run rolled back", **objects.names(run, seen.held.attempt if seen.held else None))
        await objects.delete(world, run)
        return
    now = end.at or world.now()
    began = end.started or world.memory.of(run.run_id).started or run.status.start_time
    patch: Manifest = {}
    if ran_on is not None and seen.held is not None:
        began = began or now
        patch = status.running(run, status.Binding.to(ran_on.pod, seen.held.attempt), began)
    patch |= status.ended(run, end, started=began, now=now)
    attempt = seen.held.attempt if seen.held else None
    log.info("run ended", **objects.names(run, attempt), state=end.state.value, duration=patch.get("duration"))
    await objects.patch(world, run, patch)
    if end.state is RunState.INTERRUPTED:
        await objects.tell(world, run, "Cancelled", "the run was cancelled")
    elif end.state is not RunState.SUCCESS:
        note = end.error.message if end.error else f"the run ended as {end.state.value}"
        await objects.tell(world, run, "Failed", note, warning=True)


def _end_of(row: RunRow, reason: RunReason | None) -> End:
    error = RunError(error=row.error["error"], message=row.error["message"]) if row.error else None
    return End(row.status, error, reason=reason, started=row.started_at, at=row.ended_at)


async def _timed(world: World, seen: RunSeen, end: End) -> End:
    """The end of a run that this operator didn't start may be older than its own start: the row knows the times."""
    memory = world.memory.runs.get(seen.run.run_id)
    if end.rolled_back or (memory is not None and memory.started is not None):
        return end
    row = await world.rows.get(seen.run.run_id)
    return end if row is None else replace(end, started=row.started_at, at=row.ended_at)


def _finished(world: World, seen: RunSeen) -> None:
    """Nothing of the run stays in memory."""
    world.memory.forget(seen.run.run_id)
    if seen.gone:
        world.memory.forget_deleted(thread_of(seen.run), seen.run.run_id)
