"""Writes to Run objects: status, deletion, Events. Called by `apply` and `ends`; the answers go to the cache."""

import structlog

from runyard_api.crd import Manifest
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_kube import errors as kube
from runyard_kube.resources import RUNS
from runyard_operator import events
from runyard_operator.seen import run_of
from runyard_operator.workqueue import Key
from runyard_operator.world import World

log = structlog.get_logger()


_TRIES = 5


async def patch(world: World, run: Run, status: Manifest) -> bool:
    """Writes the status; false when the object is gone, which needs none. Whether that cancels a run that was admitted
    is told by the watch.

    A name that a person gave may be another object's by now, so there the version is a precondition: the API server
    lets no uid be one for a status. Raises KubeError.
    """
    meta = run.metadata
    version = meta.resource_version if run.spec.sequence is None else None
    for tries in range(_TRIES):
        try:
            raw = await world.cluster.patch_status(
                RUNS, meta.namespace, meta.name, status, resource_version=version or None
            )
            world.caches.runs.put(run_of(raw))
            _count(world, run, status)
            return True
        except kube.NotFound:
            break
        except kube.Conflict:
            if tries == _TRIES - 1:
                raise
        version = await _version(world, run)
        if version is None:
            break
    log.debug("object is gone", **names(run))
    return False


def _count(world: World, run: Run, status: Manifest) -> None:
    world.metrics.patched(run, status)
    memory = world.memory.runs.get(run.run_id)
    if run.state is RunState.PENDING and status.get("attempt") == 1 and memory and memory.seen and memory.started:
        world.metrics.dispatched(run.spec.agent_name, memory.seen, memory.started)


async def _version(world: World, run: Run) -> str | None:
    """The version that this very object has now; None when it is gone."""
    try:
        raw = await world.cluster.get(RUNS, run.metadata.namespace, run.metadata.name)
    except kube.NotFound:
        return None
    version: str = raw["metadata"]["resourceVersion"]
    return version if raw["metadata"]["uid"] == run.metadata.uid else None


async def delete(world: World, run: Run) -> None:
    """Deletes the object, this very one; the watch then tells of a deletion that is ours and no cancel.

    Raises KubeError.
    """
    meta = run.metadata
    world.memory.own_deletions.add(meta.uid)
    try:
        await world.cluster.delete(RUNS, meta.namespace, meta.name, uid=meta.uid)
    except (kube.NotFound, kube.Conflict):
        log.debug("object is gone", **names(run))
    except kube.KubeError:
        world.memory.own_deletions.discard(meta.uid)
        raise
    world.caches.runs.remove(meta.namespace, meta.name, meta.uid)


async def find(world: World, thread: Key, run_id: str) -> bool:
    """Looks at the API server for the object of a run, and caches it. Raises KubeError.

    A hand-written Run isn't named by its id, so without an object of that name all are listed: this is rare.
    """
    try:
        world.caches.runs.put(run_of(await world.cluster.get(RUNS, thread.namespace, run_id)))
        return True
    except kube.NotFound:
        listing = await world.cluster.list(RUNS, thread.namespace)
    found = [raw for raw in listing.items if raw["metadata"]["uid"] == run_id]
    for raw in found:
        world.caches.runs.put(run_of(raw))
    return bool(found)


async def tell(world: World, run: Run, reason: str, note: str, *, warning: bool = False) -> None:
    """Posts an Event about a Run."""
    kind = events.WARNING if warning else events.NORMAL
    body = events.event(run, reason=reason, note=note, kind=kind, now=world.now(), instance=world.settings.instance)
    await events.post(world.cluster, body)


def names(run: Run, attempt: int | None = None) -> dict[str, object]:
    """What a log line about a run names; `attempt` None: the one in its status."""
    of_run: dict[str, object] = {"run": run.run_id, "thread": run.thread_id, "agent": run.spec.agent_name}
    return of_run | ({"attempt": number} if (number := attempt or run.status.attempt) else {})
