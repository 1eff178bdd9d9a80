"""What a reconcile of an Agent knows and may decide. Frozen values, made by `reconcile` and `decide`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runyard_api.agent import Agent, AgentStatus
from runyard_operator.agents.problems import Problem
from runyard_operator.seen import PodView


@dataclass(frozen=True)
class PodSeen:
    """One pod of the Agent. `usable`: it takes runs. `busy`: slots in use. `needed`: a run that was on it isn't settled
    yet. `graphs`: what it serves, empty before its first word."""

    pod: PodView
    usable: bool = False
    draining: bool = False
    busy: int = 0
    needed: bool = False
    graphs: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        return not self.pod.ended and not self.pod.deleting


@dataclass(frozen=True)
class StartsSeen:
    """How starts of the current template went: see `starts.Starts`."""

    failures: int = 0
    not_before: datetime | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class AgentObserved:
    """An Agent, its own pods, and `taken`: graph id → name of the older Agent that serves it."""

    agent: Agent
    pods: tuple[PodSeen, ...] = ()
    starts: StartsSeen = StartsSeen()
    taken: Mapping[str, str] | None = None
    status_written: datetime | None = None
    """When this operator last wrote the status; None: not yet."""
    hold_until: datetime | None = None
    """Until then a pod that ran before this operator may still say that it takes runs; the status stays as it is."""


@dataclass(frozen=True)
class AgentPlan:
    """Pods to make (names) and to delete, the status as it should be, and when to look again. `retire`: names of pods
    that get no new runs, because pods of the current template take them."""

    create: tuple[str, ...] = ()
    delete: tuple[PodView, ...] = ()
    retire: frozenset[str] = frozenset()
    status: AgentStatus | None = None
    """None: the one there is right, or may wait until `due`."""
    due: datetime | None = None
