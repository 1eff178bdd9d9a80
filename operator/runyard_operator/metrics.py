"""What the operator tells Prometheus, on the probes' port. Made by `app`, one for the process; `world`, the queues, the
sweep and the writes to Runs count here.

Labels are bounded: kinds, verbs, codes, reasons and names of Agents; never a run, a thread or a user. What can be read
from the present state is read when it is asked for (`Present`), so it costs nothing in between.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from runyard_api.conditions import ConditionType
from runyard_api.crd import Manifest
from runyard_api.run import Run
from runyard_api.states import RunState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_P = "runyard_operator_"
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_WAITS = (*_SECONDS, 30, 60, 300, 1800)


class Metrics:
    """Counters and histograms, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._reconciles = self._histogram("reconcile_seconds", "Time of one reconcile.", ["queue"], _SECONDS)
        self._errors = self._counter("reconcile_errors", "Reconciles that failed and are repeated.", ["queue"])
        self._transitions = self._counter(
            "run_transitions", "States written to Runs, with the reason.", ["agent", "state", "reason"]
        )
        self._attempts = self._counter("attempts", "Attempts that a pod took.", ["agent"])
        self._losses = self._counter("losses", "Attempts whose pod was lost.", ["agent", "cause"])
        self._dispatch = self._histogram(
            "dispatch_seconds", "From when a Run was first seen to when a pod took it.", ["agent"], _WAITS
        )
        self._requests = self._counter("api_requests", "Calls of the Kubernetes API.", ["verb", "code"])
        self._sweeps = self._counter("sweeps", "Comparisons of the caches with lists.", ["result"])
        self._missed = self._counter("missed_changes", "Objects that a watch hadn't told of.", ["kind", "change"])

    def reconciled(self, queue: str, seconds: float, failed: bool) -> None:
        self._reconciles.labels(queue).observe(seconds)
        if failed:
            self._errors.labels(queue).inc()

    def patched(self, run: Run, status: Manifest) -> None:
        """Counts what a status patch of a Run says, beside the state before; a repeated patch says nothing new."""
        agent, state = run.spec.agent_name, status.get("state")
        begun = status.get("podName") is not None and status.get("attempt") != run.status.attempt
        if begun:
            self._attempts.labels(agent).inc()
        if state is None or (state == run.state.value and not begun):
            return
        self._transitions.labels(agent, state, _reason(status)).inc()
        if state == RunState.PENDING.value and run.state is RunState.RUNNING:
            failed = (status.get("failures") or 0) > (run.status.failures or 0)
            self._losses.labels(agent, "failure" if failed else "disruption").inc()

    def dispatched(self, agent: str, seen: datetime, taken: datetime) -> None:
        """A pod took a run's first attempt."""
        self._dispatch.labels(agent).observe(max(0.0, (taken - seen).total_seconds()))

    def requested(self, verb: str, code: int) -> None:
        """A call of the Kubernetes API; `code` 0: no answer."""
        self._requests.labels(verb, str(code)).inc()

    def swept(self, *, failed: bool) -> None:
        self._sweeps.labels("failed" if failed else "done").inc()

    def missed(self, kind: str, change: str, count: int = 1) -> None:
        """`change`: deletion or update."""
        self._missed.labels(kind, change).inc(count)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)

    def _counter(self, name: str, told: str, labels: list[str]) -> Counter:
        return Counter(_P + name, told, labels, registry=self.registry)

    def _histogram(self, name: str, told: str, labels: list[str], buckets: Iterable[float]) -> Histogram:
        return Histogram(_P + name, told, labels, buckets=tuple(buckets), registry=self.registry)


@dataclass(frozen=True)
class QueueNow:
    """A work queue: keys that are due or worked, and the age of the oldest in seconds."""

    name: str
    depth: int
    age: float


@dataclass(frozen=True)
class AgentNow:
    """An Agent's pods: slots, those in use, threads that wait for one."""

    name: str
    slots: int
    busy: int
    waiting: int


@dataclass(frozen=True)
class Now:
    """What a scrape sees. `runs`: how many Run objects are in which state. `lag`: of the event loop, in seconds."""

    leading: bool
    lag: float
    queues: tuple[QueueNow, ...]
    agents: tuple[AgentNow, ...]
    runs: dict[str, int]


class Present(Collector):
    """Gauges of the present state, read at each scrape."""

    def __init__(self, now: Callable[[], Now]) -> None:
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = self._now()
        yield _gauge("leader", "1 while this operator leads.", {(): float(now.leading)})
        yield _gauge("loop_lag_seconds", "How late the event loop comes to a timer.", {(): now.lag})
        queues, agents = now.queues, now.agents
        yield _gauge("queue_depth", "Keys that are due or worked.", {(q.name,): q.depth for q in queues}, "queue")
        yield _gauge("queue_age_seconds", "Age of the oldest of them.", {(q.name,): q.age for q in queues}, "queue")
        yield _gauge("runs", "Run objects by state.", {(state,): count for state, count in now.runs.items()}, "state")
        yield _gauge("slots", "Slots of pods that take runs.", {(a.name,): a.slots for a in agents}, "agent")
        yield _gauge("slots_busy", "Slots in use.", {(a.name,): a.busy for a in agents}, "agent")
        yield _gauge("waiting", "Threads that wait for a slot.", {(a.name,): a.waiting for a in agents}, "agent")

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: a registry would collect to find out, before there is anything to tell."""
        return iter(())


def _gauge(name: str, told: str, values: dict[tuple[str, ...], float], *labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(_P + name, told, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _reason(status: Manifest) -> str:
    conditions = status.get("conditions") or ()
    return next((c["reason"] for c in conditions if c["type"] == ConditionType.SUCCEEDED.value), "")
