"""Which pods of an Agent are made, retired, marked and deleted: scaling, replacing, draining. Pure; called by `decide`.

Pods that stay are `fresh` (of the present template) or `old`. While old ones take runs, fresh ones are started one at a
time, and each that works takes the place of an old one. A pod that leaves takes no new run; it is deleted when it is
idle, or when its time as a marked one is over: then the runtime hands its runs over at their next step.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from runyard_api.names import agent_pod_name
from runyard_operator.agents.model import AgentObserved, PodSeen, PodsPlan
from runyard_operator.seen import PodView

SETTLE = timedelta(seconds=1)


@dataclass(frozen=True)
class Crew:
    """An Agent's living pods by what they are to it; `spent` and `old` and `fresh` don't overlap with `leaving`, the
    pods that are marked or say that they drain."""

    fresh: tuple[PodSeen, ...]
    old: tuple[PodSeen, ...]
    spent: tuple[PodSeen, ...]
    leaving: tuple[PodSeen, ...]

    @property
    def working(self) -> int:
        """Fresh pods that answer."""
        return sum(one.answers for one in self.fresh)


def crew_of(pods: Iterable[PodSeen], hash8: str) -> Crew:
    """Sorts the living pods."""
    alive = [one for one in pods if one.alive]
    leaving = tuple(one for one in alive if one.pod.draining or one.stopping)
    stay = [one for one in alive if one not in leaving]
    return Crew(
        fresh=tuple(one for one in stay if not one.spent and one.pod.hash8 == hash8),
        old=tuple(one for one in stay if not one.spent and one.pod.hash8 != hash8),
        spent=tuple(one for one in stay if one.spent),
        leaving=leaving,
    )


def plan_pods(seen: AgentObserved, hash8: str, now: datetime, *, may_create: bool) -> PodsPlan:
    """The plan for the pods. `may_create` False: the spec isn't allowed, or the Agent is deleted."""
    crew = crew_of(seen.pods, hash8)
    replaced = _replaced(seen, crew)
    surplus, later = _surplus(seen, crew, now)
    retired = [*replaced, *surplus, *crew.leaving, *crew.spent]
    delete = [one.pod for one in seen.pods if not one.pod.deleting and _goes(seen, one, one in retired, now, hash8)]
    timeless = [one for one in crew.leaving if one.pod.draining and one.pod.draining_since is None]
    mark = [one.pod for one in [*replaced, *timeless] if one.pod not in delete]
    missing = _missing(seen, crew) if may_create else 0
    waits_until = _waits_until(seen, now) if missing > 0 else None
    deadlines = [_deadline(seen, one.pod, now) for one in retired if one.pod not in delete]
    times = [waits_until, later, seen.wanted.falls_at, _settled_at(seen, retired, delete, now), *deadlines]
    return PodsPlan(
        create=() if waits_until else tuple(_free_names(seen.agent.metadata.name, hash8, seen.pods, missing)),
        delete=tuple(delete),
        mark=tuple(mark),
        retire=frozenset(one.pod.name for one in retired),
        due=min((at for at in times if at is not None), default=None),
    )


def _replaced(seen: AgentObserved, crew: Crew) -> list[PodSeen]:
    """Pods whose place is taken: all of a deleted Agent; old ones all once enough fresh ones work, else one for each.
    Those that are on their way out anyway go first, then those with the least to do."""
    enough = seen.wanted.discovered and crew.working >= seen.wanted.now
    keep = 0 if enough else max(0, max(seen.wanted.kept, seen.wanted.now) - crew.working)
    if seen.agent.deleting:
        return [*crew.old, *crew.fresh, *crew.spent]
    order = sorted(crew.old, key=lambda one: (not one.retired, one.answers, one.busy, one.pod.name))
    return order[: max(0, len(order) - keep)]


def _surplus(seen: AgentObserved, crew: Crew, now: datetime) -> tuple[list[PodSeen], datetime | None]:
    """Fresh pods that haven't been needed for long enough, and when a younger one will be such a pod. They are given
    no more runs, keep those they have, and are used again when there is more to do before they are idle."""
    spare = len(crew.fresh) - max(seen.wanted.kept, seen.wanted.now)
    if spare <= 0 or seen.agent.deleting:
        return [], None
    order = sorted(crew.fresh, key=lambda one: (not one.retired, one.answers, one.busy, -_index(one.pod)))
    patience = timedelta(seconds=seen.agent.spec.replicas.idle_seconds)
    ripe = {one.pod.name: (one.answers_since or now - patience) + patience for one in order[:spare]}
    later = min((at for at in ripe.values() if at > now), default=None)
    return [one for one in order[:spare] if ripe[one.pod.name] <= now], later


def _goes(seen: AgentObserved, one: PodSeen, retired: bool, now: datetime, hash8: str) -> bool:
    """Whether a pod is deleted now: it ended, never got to work for an older template, or leaves and is idle or late.
    Not before the runs of an ended pod are settled: how it ended tells what became of them."""
    if one.pod.ended:
        return not one.needed and not one.busy
    useless = one.pod.hash8 != hash8 and not one.pod.reachable and one.idle
    deadline = _deadline(seen, one.pod, now)
    late = deadline is not None and deadline <= now
    return useless or (retired and (one.idle or late))


def _settled_at(seen: AgentObserved, retired: list[PodSeen], delete: list[PodView], now: datetime) -> datetime | None:
    """When to look again at pods that run nothing and only wait for the ends of their runs to be written down: nobody
    tells of that."""
    waiting = any(
        one.needed and not one.busy and (one.pod.ended or one in retired)
        for one in seen.pods
        if one.pod not in delete and not one.pod.deleting
    )
    return now + SETTLE if waiting else None


def _deadline(seen: AgentObserved, pod: PodView, now: datetime) -> datetime | None:
    """When a marked pod is deleted whatever it runs; None for one that isn't marked, or not with a time yet."""
    since = pod.draining_since
    return None if since is None else min(since, now) + timedelta(seconds=seen.agent.spec.drain_seconds)


def _missing(seen: AgentObserved, crew: Crew) -> int:
    """How many pods to start now."""
    wanted, most = seen.wanted.now, seen.agent.spec.replicas.max
    missing = wanted - len(crew.fresh)
    if not seen.wanted.discovered:
        missing = min(missing, 1 - len(crew.fresh))
    if crew.old:
        missing = min(missing, 1 - (len(crew.fresh) - crew.working))
    if crew.spent:
        missing = min(missing, most + 1 - len(crew.fresh) - len(crew.old) - len(crew.spent))
    return missing


def _waits_until(seen: AgentObserved, now: datetime) -> datetime | None:
    at = seen.starts.not_before
    return at if at is not None and at > now else None


def _index(pod: PodView) -> int:
    tail = pod.name.rsplit("-", 1)[-1]
    return int(tail) if tail.isdecimal() else 0


def _free_names(agent: str, hash8: str, pods: tuple[PodSeen, ...], count: int) -> Iterable[str]:
    """The lowest free indexes; the name of a pod that is still going away isn't free."""
    taken = {p.pod.name for p in pods}
    index = 0
    while count > 0:
        if (name := agent_pod_name(agent, hash8, index)) not in taken:
            count -= 1
            yield name
        index += 1
