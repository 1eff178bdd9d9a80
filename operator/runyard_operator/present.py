"""What the operator's gauges show, read from the World of the present term at each scrape. Called by `app`."""

from collections import Counter

from runyard_api.states import RunState
from runyard_operator.metrics import AgentNow, Now, QueueNow
from runyard_operator.workqueue import Key
from runyard_operator.world import World


def now_of(world: World, lag: float) -> Now:
    """The present state; `lag` of the event loop in seconds. A standby knows of no slots: only a leader asks pods."""
    states = Counter(run.state.value for run in world.caches.runs)
    return Now(
        leading=world.leading,
        lag=lag,
        queues=tuple(QueueNow(queue.name, len(queue), queue.oldest_age()) for queue in world.queues),
        agents=tuple(_agent(world, Key(a.metadata.namespace, a.metadata.name)) for a in world.caches.agents),
        runs={state.value: states[state.value] for state in RunState},
    )


def _agent(world: World, agent: Key) -> AgentNow:
    slots = [link.slots for link in world.links.of_agent(agent) if link.usable]
    return AgentNow(
        name=agent.name,
        slots=sum(one.capacity for one in slots),
        busy=sum(link.slots.busy for link in world.links.of_agent(agent)),
        waiting=world.links.waiting.count(agent),
    )
