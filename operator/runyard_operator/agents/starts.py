"""How often pods of a template failed, and when the next may be made: growing delays, never a hot loop. Pure state."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from runyard_api.retry import pause
from runyard_operator.agents.problems import Problem

DELAYS = (0, 5, 10, 20, 40, 80, 160, 300)
"""Seconds before the pod that follows the n-th failure in a row; the last one repeats."""
STEADY_SECONDS = 60
"""A pod that took runs for so long was no failed start: the count begins anew."""


@dataclass
class Starts:
    """The starts of one template. `counted`: uids of the pods whose end is in `failures`."""

    failures: int = 0
    not_before: datetime | None = None
    problem: Problem | None = None
    usable_since: datetime | None = None
    counted: set[str] = field(default_factory=set)

    def note_failure(self, pod_uid: str, problem: Problem, now: datetime) -> None:
        """Counts the end of a pod, once."""
        if pod_uid in self.counted:
            return
        self.counted.add(pod_uid)
        self.note_refusal(problem, now)

    def note_refusal(self, problem: Problem, now: datetime) -> None:
        """Counts a pod that couldn't even be made."""
        steady = self.usable_since is not None and now - self.usable_since >= timedelta(seconds=STEADY_SECONDS)
        self.failures = 1 if steady else self.failures + 1
        self.usable_since = None
        self.problem = problem
        self.not_before = now + timedelta(seconds=pause(DELAYS, self.failures))

    def note_worked(self) -> None:
        """A pod that took runs is let go because there is nothing to do: the template works."""
        self.failures, self.problem, self.not_before = 0, None, None
        self.counted.clear()

    def note_usable(self, usable: bool, now: datetime) -> None:
        """Keeps since when some pod of the template takes runs; a steady one clears the past."""
        if not usable:
            self.usable_since = None
        elif self.usable_since is None:
            self.usable_since = now
        elif self.failures and now - self.usable_since >= timedelta(seconds=STEADY_SECONDS):
            self.note_worked()
