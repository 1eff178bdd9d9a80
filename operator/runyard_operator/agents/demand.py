"""How many pods an Agent needs: by what there is to do now, and by the most that was needed lately. Called by
`reconcile`; pure, but for what `Demand` remembers."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from runyard_api.agent import AgentSpec

WANTED_SECONDS = 30.0
"""How long a request that needs graph code counts after it was told: as long as the gateway lets it wait."""


@dataclass(frozen=True)
class Load:
    """`running`: slots in use on pods that stay. `dispatchable`: runs that could begin if there were a slot.
    `wanted_at`: when a request last needed graph code while no pod was up (None: never). `discovered`: the template's
    graphs are known."""

    running: int = 0
    dispatchable: int = 0
    wanted_at: datetime | None = None
    discovered: bool = True


def desired_pods(spec: AgentSpec, load: Load, now: datetime) -> int:
    """clamp(ceil((running + dispatchable) / slots), min, max), where a template that isn't discovered yet and a request
    for graph code need one pod."""
    per_pod = min(spec.slots, spec.max_runs_per_pod or spec.slots)
    needed = -(-(load.running + load.dispatchable) // per_pod)
    if not load.discovered or lapses_at(load.wanted_at, now):
        needed = max(needed, 1)
    return clamped(spec, needed)


def clamped(spec: AgentSpec, pods: int) -> int:
    """The nearest number that the Agent may have."""
    return max(spec.replicas.min, min(pods, spec.replicas.max))


def lapses_at(wanted_at: datetime | None, now: datetime) -> datetime | None:
    """Until when a request for graph code may still be waiting; None: none is. A time far ahead is nobody's clock."""
    patience = timedelta(seconds=WANTED_SECONDS)
    return wanted_at + patience if wanted_at is not None and abs(now - wanted_at) < patience else None


@dataclass
class Demand:
    """When each number of pods was last needed. `_level`: what is needed at present."""

    _level: int = 0
    _needed_at: dict[int, datetime] = field(default_factory=dict)

    def note(self, pods: int, now: datetime) -> None:
        """So many pods are needed from now on; up to now it was as many as noted before."""
        for number in range(1, max(pods, self._level) + 1):
            self._needed_at[number] = now
        self._level = pods

    def highest(self, idle_seconds: int, now: datetime) -> int:
        """The most pods that were needed within the last seconds."""
        since = now - timedelta(seconds=idle_seconds)
        return max([self._level, *(number for number, at in self._needed_at.items() if at > since)])

    def falls_at(self, idle_seconds: int, now: datetime) -> datetime | None:
        """When `highest` falls next, unless more is needed meanwhile; None: it won't."""
        highest = self.highest(idle_seconds, now)
        return self._needed_at[highest] + timedelta(seconds=idle_seconds) if highest > self._level else None
