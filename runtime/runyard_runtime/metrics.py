"""What an agent pod tells Prometheus, at /metrics on the port of its API, without a token as /healthz is. Made by
`runtime.py`; `registry` and `attempt` count here. Labels are states alone: never a run, a thread or a user.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_P = "runyard_runtime_"


class Metrics:
    """Counters with a registry of their own. Every method may be called from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._started = self._counter("attempts_started", "Attempts begun here.", "resumed")
        self._ended = self._counter("attempts_ended", "Attempts over here, by how.", "state")
        self._batches = Counter(_P + "event_batches", "Batches of events written to the log.", registry=self.registry)
        self._events = Counter(_P + "events", "Events in them.", registry=self.registry)
        self._retries = self._counter("database_retries", "Writes that waited for the database.", "of")
        self._checkpoints = Counter(
            _P + "checkpoint_errors", "Runs that ended because a checkpoint couldn't be stored.", registry=self.registry
        )

    def started(self, *, resumed: bool) -> None:
        self._started.labels(str(resumed).lower()).inc()

    def ended(self, state: str) -> None:
        """`state`: of the run, or rolled_back; fenced and drained of an attempt that was given up."""
        self._ended.labels(state).inc()

    def logged(self, events: int) -> None:
        """One batch is in the log."""
        self._batches.inc()
        self._events.inc(events)

    def waited(self, of: str) -> None:
        """The database didn't answer; `of`: events or end."""
        self._retries.labels(of).inc()

    def checkpoint_failed(self) -> None:
        self._checkpoints.inc()

    def gauge(self, name: str, told: str, read: Callable[[], float]) -> None:
        """A number that is read at each scrape."""
        Gauge(_P + name, told, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)

    def _counter(self, name: str, told: str, label: str) -> Counter:
        return Counter(_P + name, told, [label], registry=self.registry)
