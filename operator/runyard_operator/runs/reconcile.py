"""The reconcile of one thread: observe, decide, apply, and when to look again. The handler of the queue of threads."""

from structlog.contextvars import bound_contextvars

from runyard_operator.runs.apply import apply
from runyard_operator.runs.decide import decide
from runyard_operator.runs.model import Dispatch, Plan, Wait
from runyard_operator.runs.observe import observe
from runyard_operator.workqueue import Key
from runyard_operator.world import World


async def reconcile_thread(world: World, thread: Key) -> float | None:
    """Brings the runs of a thread one step further; returns the seconds until it must be looked at again, or None.

    Raises KubeError, Unavailable: the queue repeats it later.
    """
    with bound_contextvars(thread=thread.name):
        return await _reconcile(world, thread)


async def _reconcile(world: World, thread: Key) -> float | None:
    seen = await observe(world, thread)
    plan = decide(seen, world.now(), unknown_agent_seconds=world.settings.unknown_agent_seconds)
    _leave_queue(world, thread, plan)
    delays = [await apply(world, thread, action) for action in plan.actions]
    if plan.due is not None:
        delays.append((plan.due - world.now()).total_seconds())
    return min((max(0.0, delay) for delay in delays if delay is not None), default=None)


def _leave_queue(world: World, thread: Key, plan: Plan) -> None:
    """A thread that wants no slot of an Agent any more doesn't keep others waiting behind it."""
    wanted = {Key(thread.namespace, a.seen.run.spec.agent_name) for a in plan.actions if isinstance(a, Dispatch | Wait)}
    agent = world.memory.waits_for.get(thread)
    if agent is not None and agent not in wanted:
        world.links.waiting.leave(agent, thread)
        del world.memory.waits_for[thread]
        world.links.wake_waiting(agent)
