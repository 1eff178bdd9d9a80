"""What a reconcile of an Agent knows and may decide. Frozen values, made by `observe` and `decide`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runyard_api.agent import Agent, AgentStatus
from runyard_operator.agents.problems import Problem
from runyard_operator.seen import PodView


@dataclass(frozen=True)
class PodSeen:
    """One pod of the Agent.

    `answers_since`: since when its status stream is open; None: it isn't. `usable`: it takes runs. `spent`: it took as
    many as it may. `stopping`: it says that it drains. `retired`: we give it no new ones. `busy`: slots in use, `most`
    of them at the same time since the last look. `needed`: a run that was on it isn't settled yet. `graphs`: what it
    serves, empty before its first word.
    """

    pod: PodView
    answers_since: datetime | None = None
    usable: bool = False
    spent: bool = False
    stopping: bool = False
    retired: bool = False
    busy: int = 0
    most: int = 0
    needed: bool = False
    graphs: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        return not self.pod.ended and not self.pod.deleting

    @property
    def answers(self) -> bool:
        return self.answers_since is not None

    @property
    def leaving(self) -> bool:
        """It goes once its runs have ended, whatever else is decided."""
        return self.pod.draining or self.stopping or self.spent

    @property
    def idle(self) -> bool:
        """Nothing runs on it for certain: one that runs but doesn't answer may have runs."""
        return not self.busy and not self.needed and (self.answers or not self.pod.reachable)


@dataclass(frozen=True)
class StartsSeen:
    """How starts of the current template went: see `starts.Starts`."""

    failures: int = 0
    not_before: datetime | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class Wanted:
    """How many pods there should be: `now`, and `kept`, the most of late, until `falls_at` (None: it stays).
    `discovered`: the template's graphs and schemas are known."""

    now: int = 1
    kept: int = 1
    falls_at: datetime | None = None
    discovered: bool = True


@dataclass(frozen=True)
class AgentObserved:
    """An Agent, its own pods, and `taken`: graph id → name of the older Agent that serves it."""

    agent: Agent
    pods: tuple[PodSeen, ...] = ()
    wanted: Wanted = Wanted()
    starts: StartsSeen = StartsSeen()
    taken: Mapping[str, str] | None = None
    status_written: datetime | None = None
    """When this operator last wrote the status; None: not yet."""
    hold_until: datetime | None = None
    """Until then a pod that ran before this operator may still say that it takes runs; the status stays as it is."""


@dataclass(frozen=True)
class PodsPlan:
    """What becomes of an Agent's pods.

    `create`: names. `delete`: pods to ask away. `mark`: those to mark as draining, so that their time runs. `retire`:
    names of pods that get no new runs. `due`: when to look again.
    """

    create: tuple[str, ...] = ()
    delete: tuple[PodView, ...] = ()
    mark: tuple[PodView, ...] = ()
    retire: frozenset[str] = frozenset()
    due: datetime | None = None


@dataclass(frozen=True)
class AgentPlan:
    """What becomes of the pods, the status as it should be, and when to look again. `release`: the Agent is deleted and
    nothing of it is left, so it may go."""

    pods: PodsPlan = PodsPlan()
    status: AgentStatus | None = None
    """None: the one there is right, or may wait until `due`."""
    release: bool = False
    due: datetime | None = None
