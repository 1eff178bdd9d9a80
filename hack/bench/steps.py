"""The measurements in their order, each a few rows of the report. Called by __main__.py; what it calls does the work.

Every step stands alone: one that fails or takes too long costs its own rows only.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from hack.bench import bare, relayed, streams
from hack.bench.api_writes import writes
from hack.bench.figures import Figure, at_least, at_most
from hack.bench.load import Client, Latency
from hack.bench.processes import BARE, Use, spent, uses
from hack.bench.recovery import silence_after_a_kill
from hack.bench.stored import add_finished_runs
from hack.bench.targets import Target

CONCURRENCIES = (10, 50)
STORED = 10_000
IDLE_SECONDS = 40
_OWN = ("operator", "gateway")


@dataclass(frozen=True)
class Step:
    """`seconds`: after these it is given up."""

    name: str
    measure: Callable[["Bench"], Awaitable[list[Figure]]]
    seconds: float = 240
    cluster_only: bool = False


@dataclass
class Bench:
    """What every step works with. `peer` is None where there is none; `latency` is kept for later comparison."""

    target: Target
    client: Client
    one: Client
    peer: Client | None
    runs: int
    latency: Latency | None = field(default=None)

    @property
    def in_cluster(self) -> bool:
        return self.target.cluster is not None


async def latency(bench: Bench) -> list[Figure]:
    await bench.client.first_events("tokens", 10)
    ours = bench.latency = await bench.client.first_events("stub", 100)
    what, shown = "stream POST → first event, idle", _shown(ours)
    figures = [at_most(what, ours.p50, "ms", goal=20, shown=shown) if bench.in_cluster else Figure(what, shown)]
    if bench.peer:
        figures.append(Figure("the same, `langgraph dev`", _shown(await bench.peer.first_events("stub", 10))))
    return figures


async def stub_speed(bench: Bench) -> list[Figure]:
    figures = []
    for concurrency in CONCURRENCIES:
        before = uses()
        speed = await bench.client.runs_per_second("stub", runs=bench.runs, concurrency=concurrency)
        what = f"stub runs/s at {concurrency} concurrent"
        goal = bench.in_cluster and concurrency == CONCURRENCIES[-1]
        figures.append(at_least(what, speed, "", goal=100) if goal else Figure(what, f"{speed:.1f}"))
    figures.append(Figure("CPU per stub run", await _per_run(bench, before, bench.runs)))
    return figures


async def real_speed(bench: Bench) -> list[Figure]:
    """Server, floor and peer in turn, twice, so that a machine that changes its speed changes all."""
    half, concurrency = bench.runs // 2, CONCURRENCIES[-1]
    ours, floor, peer = 0.0, 0.0, 0.0
    before, own_cpu = uses(), 0.0
    costs = [Figure("CPU per 20-token run", "")]
    for turn in range(2):
        ours += await bench.client.runs_per_second("tokens", runs=half, concurrency=concurrency) / 2
        if turn == 0:
            costs = [Figure("CPU per 20-token run", await _per_run(bench, before, half))]
        used, start = uses(), time.process_time()
        floor += (
            await bare.runs_per_second(bench.target.floor_database, "tokens", runs=half, concurrency=concurrency) / 2
        )
        own_cpu = (time.process_time() - start) / half
        await asyncio.sleep(0.5)  # until Postgres has counted the connections that ended
        database = (uses()["Postgres"] + Use(-used["Postgres"].cpu)).cpu / half if bench.in_cluster else 0.0
        if bench.peer:
            used = uses()
            peer += await bench.peer.runs_per_second("tokens", runs=half, concurrency=concurrency) / 2
            peer_cpu = spent(used, uses()).get("langgraph dev", 0.0) / half
    what = f"20-token runs/s at {concurrency} concurrent"
    shown = f"{ours:.1f} against a floor of {floor:.1f}: {ours / floor:.2f}"
    against = at_least(f"{what}, floor", ours / floor, "of the floor", goal=0.6, shown=shown)
    figures = [against if bench.in_cluster else Figure(what, shown)]
    floor_cost = f"{(own_cpu + database) * 1000:.1f} ms: graph {own_cpu * 1000:.1f}, Postgres {database * 1000:.1f}"
    costs.append(Figure("the same, floor", floor_cost))
    if bench.peer:
        shown = f"{ours:.1f} against {peer:.1f}: {ours / peer:.2f}"
        figures.append(at_least(f"{what}, `langgraph dev`", ours / peer, "times the peer", goal=1.3, shown=shown))
        costs.append(Figure("the same, `langgraph dev`", f"{peer_cpu * 1000:.1f} ms, its state in memory only"))
    return figures + costs


async def api_writes(bench: Bench) -> list[Figure]:
    cluster, runs = bench.target.cluster, 50
    assert cluster is not None
    before = writes(await asyncio.to_thread(cluster.kubectl, "get", "--raw", "/metrics"), "runs")
    await bench.client.runs_per_second("stub", runs=runs, concurrency=10)
    await asyncio.sleep(3)  # terminal states of the last runs are still being written
    after = writes(await asyncio.to_thread(cluster.kubectl, "get", "--raw", "/metrics"), "runs")
    per_run = {verb: (after[verb] - before[verb]) / runs for verb in after if verb != "DELETE"}
    text = ", ".join(f"{verb} {count:.2f}" for verb, count in sorted(per_run.items()) if count)
    total = sum(per_run.values())
    return [
        at_most("API writes per run, without the delete at its TTL", total, "", goal=3, shown=f"{total:.2f} ({text})")
    ]


async def events(bench: Bench) -> list[Figure]:
    ours = await relayed.through(bench.one, bench.target.gateway)
    raw = await relayed.bare(ours.sample)
    share = ours.per_second / raw.per_second
    return [
        Figure(f"events/s relayed, 1 run to {relayed.READERS} readers", f"{ours.per_second:,.0f}"),
        Figure("the same bytes by bare uvicorn, a write each", f"{raw.per_second:,.0f}: ours is {share:.2f} of it"),
        Figure("CPU per relayed event", f"{ours.micros:.0f} µs, bare uvicorn {raw.micros:.0f} µs"),
    ]


async def idle_streams(bench: Bench) -> list[Figure]:
    idle = await streams.idle_streams(bench.one, gateway=bench.target.gateway, runtime=bench.target.runtime)
    memory = f"{idle.gateway_kib:.0f} KiB in the gateway, {idle.runtime_kib:.0f} KiB in the agent pod"
    return [
        Figure(f"{streams.STREAMS:,} idle streams on one gateway, memory each", memory),
        Figure("the gateway's share of a core meanwhile", f"{idle.gateway_share:.1f} %"),
        Figure("stream POST → first event meanwhile", _shown(idle.latency)),
    ]


async def idle_cost(bench: Bench) -> list[Figure]:
    await asyncio.sleep(10)  # what the start left
    before = uses()
    await asyncio.sleep(IDLE_SECONDS)
    now = uses()
    share = {part: s / IDLE_SECONDS * 100 for part, s in spent(before, now).items()}
    if not bench.in_cluster:
        used = now["runyard dev"].memory / 1e6
        return [Figure("idle", f"{share.get('runyard dev', 0.0):.1f} % of a core, {used:.0f} MB")]
    memory = sum(now[part].memory for part in _OWN) / 1e6
    each = ", ".join(f"{part} {now[part].memory / 1e6:.0f}" for part in _OWN)
    total = sum(share.get(part, 0.0) for part in _OWN)
    shares = ", ".join(f"{part} {share.get(part, 0.0):.1f}" for part in _OWN)
    others = ", ".join(f"{part} {share.get(part, 0.0):.1f} %" for part in ("API server", "etcd", "Postgres", "runtime"))
    return [
        at_most(
            "control plane idle, memory of all replicas", memory, "MB", goal=400, shown=f"{memory:.0f} MB ({each})"
        ),
        at_most("control plane idle, share of a core", total, "%", goal=2, shown=f"{total:.1f} % ({shares})"),
        Figure("beside it, idle", others),
    ]


async def with_stored_runs(bench: Bench) -> list[Figure]:
    assert bench.target.database is not None
    await asyncio.to_thread(add_finished_runs, bench.target.database, STORED)
    ours = await bench.client.first_events("stub", 100)
    what, shown = f"stream POST → first event with {STORED:,} finished runs", _shown(ours)
    if bench.latency:
        shown += f" (before: p50 {bench.latency.p50:.1f})"
    return [at_most(what, ours.p50, "ms", goal=20, shown=shown)]


async def recovery(bench: Bench) -> list[Figure]:
    assert bench.target.cluster is not None
    seconds = await silence_after_a_kill(bench.client, bench.target.cluster)
    return [at_most("a run's pod is killed, another has a slot: silence of the stream", seconds, "s", goal=10)]


STEPS = (
    Step("idle cost", idle_cost),
    Step("latency", latency),
    Step("stub runs per second", stub_speed),
    Step("20-token runs per second", real_speed),
    Step("API writes", api_writes, cluster_only=True),
    Step("events relayed", events),
    Step("idle streams", idle_streams),
    Step("latency with stored runs", with_stored_runs, cluster_only=True),
    Step("recovery", recovery, cluster_only=True),
)


async def _per_run(bench: Bench, before: Mapping[str, Use], runs: int) -> str:
    await asyncio.sleep(2)  # what follows a run's end belongs to it
    others = {BARE, "langgraph dev", *(["runyard dev"] if bench.in_cluster else [])}
    by_part = {part: seconds / runs * 1000 for part, seconds in spent(before, uses(), but=others).items()}
    if not bench.in_cluster:
        return f"{by_part.get('runyard dev', 0.0):.1f} ms"
    return f"{sum(by_part.values()):.1f} ms: " + ", ".join(f"{part} {ms:.1f}" for part, ms in by_part.items())


def _shown(found: Latency) -> str:
    return f"p50 {found.p50:.1f}, p95 {found.p95:.1f} ms"
