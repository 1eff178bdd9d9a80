"""`python -m hack.bench [embedded] [cluster]`: the figures that matter, beside their goals. `make bench` runs both.

Absolute figures are this machine's; the ratios to the floor (the same graph without a server) and to the peer
(`langgraph dev`), measured in turn with ours, carry over. Lines tell how far it is; the report is Markdown.
"""

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path

from hack.bench.figures import Figure, Section, markdown, placed
from hack.bench.load import Client
from hack.bench.peer import VERSION as PEER_VERSION
from hack.bench.peer import NoPeer
from hack.bench.steps import CONCURRENCIES, STEPS, Bench, Step
from hack.bench.targets import Target, cluster_target, embedded_target, installed, peer_target
from tests.e2e.servers import ROOT, Cluster, Server

REPORT = ROOT / "out" / "bench" / "report.md"


async def measure(target: Target, peer: Server | None, steps: Sequence[Step], runs: int) -> Section:
    """The rows of all steps on one target; a step that fails has a row that says so."""
    section = Section(target.name)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(target.server.url, target.server.headers))
        one = await stack.enter_async_context(Client(target.one.url, target.one.headers, connections=0))
        other = await stack.enter_async_context(Client(peer.url, {}, last=b"event: values")) if peer else None
        bench = Bench(target, client, one, other, runs)
        for step in steps:
            if step.cluster_only and not target.cluster:
                continue
            _say(f"{target.name}: {step.name} …")
            for figure in await _figures(step, bench):
                _say(f"  {figure.what}: {figure.value}" + (f"  (goal {figure.goal})" if figure.goal else ""))
                section.figures.append(figure)
    return section


async def _figures(step: Step, bench: Bench) -> list[Figure]:
    try:
        async with asyncio.timeout(step.seconds):
            return await step.measure(bench)
    except TimeoutError:
        return [Figure(step.name, f"not measured: not done in {step.seconds:.0f} s")]
    except Exception as error:  # the top of a step: the others still tell something
        return [Figure(step.name, f"not measured: {type(error).__name__}: {str(error)[:200]}")]


def heading() -> list[str]:
    """When and on what."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "").split(
        ": "
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"Machine: {os.cpu_count()} cores ({model[-1]}), {memory:.0f} GiB, Linux {platform.release().split('-')[0]};"
        f" load before: {os.getloadavg()[0]:.2f}",
        "Everything on it at once: load generator, servers, database, and for the cluster etcd, API server and nodes",
    ]


def main() -> None:
    args = _arguments()
    makers: dict[str, AbstractContextManager[Target]] = {"embedded": embedded_target(), "cluster": cluster_target()}
    if args.installed:
        args.targets = ["installed"]
    lines, sections, start = heading(), [], time.monotonic()
    steps = [step for step in STEPS if not args.only or any(word in step.name for word in args.only)]
    with ExitStack() as stack:
        peer = None if args.no_peer else _peer(stack, lines)
        for name in args.targets:
            _say(f"{name}: starting …")
            with ExitStack() as held:
                target = installed(Cluster()) if name == "installed" else held.enter_context(makers[name])
                sections.append(asyncio.run(measure(target, peer, steps, args.runs)))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    report = markdown(lines, sections)
    REPORT.write_text(report)
    if args.into:
        args.into.write_text(placed(args.into.read_text(), report))
    print(report)
    _say(f"done in {time.monotonic() - start:.0f} s; written to {args.into or REPORT}")


def _peer(stack: ExitStack, lines: list[str]) -> Server | None:
    _say("peer: starting …")
    try:
        server = stack.enter_context(peer_target(jobs=CONCURRENCIES[-1]))
    except NoPeer as error:
        lines.append(f"Peer: not measured: {error}")
        _say(lines[-1])
        return None
    lines.append(f"Peer: `langgraph dev` of langgraph-cli {PEER_VERSION}, {CONCURRENCIES[-1]} jobs at once")
    return server


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hack.bench", description=__doc__)
    parser.add_argument("targets", nargs="*", default=["embedded", "cluster"], metavar="embedded|cluster")
    parser.add_argument("--runs", type=int, default=400, help="runs per throughput figure (default 400)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only steps with such a word in their name")
    parser.add_argument(
        "--installed", action="store_true", help="measure the release that is on the native cluster now"
    )
    parser.add_argument("--no-peer", action="store_true", help="without `langgraph dev`")
    parser.add_argument("--into", type=Path, help="a document that gets the figures between its marks")
    args = parser.parse_args()
    if unknown := set(args.targets) - {"embedded", "cluster"}:
        parser.error(f"unknown target {', '.join(sorted(unknown))}: choose from embedded, cluster")
    return args


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
