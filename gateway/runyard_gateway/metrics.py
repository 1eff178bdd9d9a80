"""What the gateway tells Prometheus, on a port of its own that is never the public one. Made by app.py, one for the
application; served by __main__.

Labels are bounded: route templates, methods, codes, results; never a run, a thread or a user. What happens per event
is counted in plain integers (`Tally`); what can be read from the present state is read when it is asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runyard_gateway.load import Load

_P = "runyard_gateway_"
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"})
NO_ROUTE = "none"


@dataclass
class Tally:
    """Counts of what happens on the way of runs and their streams."""

    submissions: int = 0
    handover_retries: int = 0
    events: int = 0
    log_fallbacks: int = 0


@dataclass(frozen=True)
class Present:
    """Where the present state is read: connections in use and at most; seconds since each watch was heard of."""

    load: Load
    tally: Tally
    pool: Callable[[], tuple[int, int]]
    watch_ages: Callable[[], dict[str, float]]


class Metrics:
    """Counters and histograms, with a registry of their own."""

    def __init__(self, present: Present) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Reader(present))
        self._requests = Counter(
            f"{_P}requests", "Requests answered.", ["route", "method", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            f"{_P}request_seconds", "From a request to the beginning of its answer.", ["route", "method"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._auth = Counter(f"{_P}authentications", "Who callers are.", ["result"], registry=self.registry)
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """An answer began. `route`: its template, None for a path that is none."""
        key = (route or NO_ROUTE, method if method in METHODS else "other", status)
        found = self._known.get(key)
        if found is None:  # a look-up by labels costs more than all the rest of this
            count = self._requests.labels(key[0], key[1], str(status))
            found = self._known[key] = (count, self._seconds.labels(key[0], key[1]))
        found[0].inc()
        found[1].observe(seconds)

    def authenticated(self, result: str) -> None:
        """`result`: key, token, refused, or unavailable when who it is couldn't be found out."""
        self._auth.labels(result).inc()


class _Reader(Collector):
    """The present state, at each scrape."""

    def __init__(self, present: Present) -> None:
        self._present = present

    def collect(self) -> Iterator[Metric]:
        load, tally = self._present.load, self._present.tally
        used, most = self._present.pool()
        yield GaugeMetricFamily(f"{_P}requests_at_work", "Requests that are being worked on.", load.working)
        yield GaugeMetricFamily(f"{_P}streams", "Open streams and waits.", load.streams)
        yield CounterMetricFamily(f"{_P}refused", "Requests refused because of too many others.", load.refused)
        yield CounterMetricFamily(f"{_P}submissions", "Runs committed and handed over.", tally.submissions)
        retries = "Times that handing over or cancelling a run was tried again."
        yield CounterMetricFamily(f"{_P}handover_retries", retries, tally.handover_retries)
        yield CounterMetricFamily(f"{_P}events_relayed", "Events sent to readers.", tally.events)
        fallbacks = "Streams that pods didn't serve to their end: the log did."
        yield CounterMetricFamily(f"{_P}log_fallbacks", fallbacks, tally.log_fallbacks)
        yield GaugeMetricFamily(f"{_P}database_connections", "Connections to the database in use.", used)
        yield GaugeMetricFamily(f"{_P}database_connections_max", "Connections to the database at most.", most)
        ages = GaugeMetricFamily(
            f"{_P}watch_age_seconds", "Since the API server's watch was last heard of.", labels=["kind"]
        )
        for kind, age in self._present.watch_ages().items():
            ages.add_metric([kind], age)
        yield ages
