"""`python -m hack.bench [embedded] [cluster]`: the figures that matter, beside their goals. `make bench` runs both.

Absolute figures are this machine's; the ratios to the floor (the same graph without a server) carry over.
"""

import argparse
import asyncio
import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from hack.bench import bare
from hack.bench.api_writes import writes
from hack.bench.load import Gateway
from rich.console import Console
from rich.table import Table
from tests.e2e.servers import RELEASE, Cluster, Server, embedded, install

CONCURRENCIES = (10, 50)
FLOOR_DATABASE = "bench_floor"


@dataclass(frozen=True)
class Target:
    """A gateway to measure, the database for the floor beside it, and the cluster it is in (None: embedded)."""

    name: str
    server: Server
    database: str
    cluster: Cluster | None = None


@dataclass(frozen=True)
class Figure:
    what: str
    value: str
    goal: str


async def measure(target: Target, runs: int) -> list[Figure]:
    """All figures of one target; `runs` is the number per throughput figure."""
    figures = []
    async with Gateway(target.server.url, target.server.headers) as gateway:
        await gateway.first_events("tokens", 10)
        latency = await gateway.first_events("stub", 100)
        goal = "p50 ≤ 20 ms" if target.cluster else "-"
        figures.append(Figure("stream POST → first event", f"p50 {latency.p50:.1f}, p95 {latency.p95:.1f} ms", goal))
        for concurrency in CONCURRENCIES:
            speed = await gateway.runs_per_second("stub", runs=runs, concurrency=concurrency)
            goal = "≥ 100" if target.cluster and concurrency == 50 else "-"
            figures.append(Figure(f"stub runs/s at {concurrency}", f"{speed:.0f}", goal))
        for concurrency in CONCURRENCIES:
            figures.append(await _beside_the_floor(gateway, target, runs, concurrency))
        if target.cluster:
            figures.append(await _api_writes(gateway, target.cluster))
    return figures


async def _beside_the_floor(gateway: Gateway, target: Target, runs: int, concurrency: int) -> Figure:
    """Server and floor in turn, twice, so that a machine that changes its speed changes both."""
    ours, floors = 0.0, 0.0
    for _ in range(2):
        ours += await gateway.runs_per_second("tokens", runs=runs // 2, concurrency=concurrency)
        floors += await bare.runs_per_second(target.database, "tokens", runs=runs // 2, concurrency=concurrency)
    value = f"{ours / 2:.0f} against a floor of {floors / 2:.0f}: {ours / floors:.2f}"
    goal = "≥ 0.6 of the floor" if target.cluster and concurrency == 50 else "-"
    return Figure(f"20-token runs/s at {concurrency}", value, goal)


async def _api_writes(gateway: Gateway, cluster: Cluster) -> Figure:
    runs = 50
    before = writes(cluster.kubectl("get", "--raw", "/metrics"), "runs")
    await gateway.runs_per_second("stub", runs=runs, concurrency=10)
    await asyncio.sleep(3)  # terminal states of the last runs are still being written
    after = writes(cluster.kubectl("get", "--raw", "/metrics"), "runs")
    per_run = {verb: (after[verb] - before[verb]) / runs for verb in after}
    text = ", ".join(f"{verb} {count:.2f}" for verb, count in sorted(per_run.items()) if count)
    return Figure("API writes per run", f"{sum(per_run.values()):.2f} ({text})", "3 (+ 1 delete at its TTL)")


@contextmanager
def embedded_target() -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as server:
        yield Target("runyard dev (sqlite)", server, str(Path(folder) / "floor.db"))


@contextmanager
def cluster_target() -> Iterator[Target]:
    """The chart on the native cluster; the floor uses a database of its own on the bundled Postgres."""
    cluster = Cluster()
    install(cluster)
    yield Target("cluster (Postgres)", cluster.server(), _floor_database(cluster), cluster)


def _floor_database(cluster: Cluster) -> str:
    """A new database on the bundled Postgres, by its owner; returns its URL."""
    secret = cluster.get("secret", f"{RELEASE}-database", RELEASE)["data"]
    owner = urlsplit(base64.b64decode(secret["owner-url"]).decode())
    service = cluster.get("service", f"{RELEASE}-postgres", RELEASE)["spec"]["clusterIP"]
    server = owner._replace(netloc=owner.netloc.replace(owner.hostname or "", service))
    with psycopg.connect(server.geturl(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {FLOOR_DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {FLOOR_DATABASE}")
    return server._replace(path=f"/{FLOOR_DATABASE}").geturl()


def show(console: Console, target: Target, figures: list[Figure]) -> None:
    table = Table("figure", "measured", "goal", title=target.name, title_justify="left")
    for figure in figures:
        table.add_row(figure.what, figure.value, figure.goal)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.bench", description=__doc__)
    parser.add_argument("targets", nargs="*", default=["embedded", "cluster"], metavar="embedded|cluster")
    parser.add_argument("--runs", type=int, default=400, help="runs per throughput figure (default 400)")
    args = parser.parse_args()
    makers = {"embedded": embedded_target, "cluster": cluster_target}
    if unknown := set(args.targets) - set(makers):
        parser.error(f"unknown target {', '.join(sorted(unknown))}: choose from embedded, cluster")
    console = Console()
    for name in args.targets:
        with makers[name]() as target:
            show(console, target, asyncio.run(measure(target, args.runs)))


if __name__ == "__main__":
    main()
