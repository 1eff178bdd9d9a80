"""The real reconciles, queues, links and feed around stand-ins, on fake time; operators crash and come back."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.support.fake_time import run_in_fake_time
from tests.support.manifests import agent
from tests.unit.operator.builders import NAMESPACE, THREAD
from tests.unit.operator.fakes import Chaos, Crash, FakeCluster, FakePod, FakeRows, now

from runyard_api.agent import Agent
from runyard_api.crd import Manifest
from runyard_api.names import API_VERSION
from runyard_api.run import Run
from runyard_kube.resources import AGENTS, PODS, RUNS, Resource
from runyard_operator.agents.observe import AgentMemory
from runyard_operator.agents.reconcile import reconcile_agent
from runyard_operator.feed import Feed
from runyard_operator.links import Links
from runyard_operator.runs.reconcile import reconcile_thread
from runyard_operator.settings import Settings
from runyard_operator.sweep import Sweep
from runyard_operator.workqueue import Key, WorkQueue
from runyard_operator.world import World

SETTINGS = Settings("postgresql://x", NAMESPACE, b"k" * 32, "runyard-database", unknown_agent_seconds=5)


@dataclass
class Stage:
    """`pods` by name, `lives`: all that ever came alive, in order. `crashes`: how often the operator died."""

    chaos: Chaos = field(default_factory=Chaos)
    pods: dict[str, FakePod] = field(default_factory=dict)
    lives: list[FakePod] = field(default_factory=list)
    crashes: int = 0
    seconds: float | None = 1.0
    slots: int = 10
    answers: bool = True

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(self.chaos, on_pod=self._pod_made, on_pod_deleted=self._pod_deleted)
        self.rows = FakeRows(self.chaos)
        self.world: World | None = None
        self.sweep: Sweep | None = None
        self._crashed = asyncio.Event()

    async def play(self, seconds: float) -> None:
        """Lets time pass; an operator that crashes is replaced by a new one, which knows nothing."""
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0:
            if self.world is None:
                await self._start()
            try:
                async with asyncio.timeout(left):
                    await self._crashed.wait()
            except TimeoutError:
                return
            self.crashes += 1
            await self.stop()

    async def stop(self) -> None:
        """The operator is gone."""
        assert self.world is not None
        self.cluster.listener = None
        await self.world.run_queue.stop(0)
        await self.world.agent_queue.stop(0)
        await self.world.links.stop()
        self.world = None
        self._crashed.clear()

    def add_agent(self, **spec: Any) -> None:
        made = agent("hello", **spec)
        self._add(AGENTS, made)

    def add_run(
        self, name: str = "r1", sequence: int | None = 1, uid: str = "", thread: int | None = None, **spec: Any
    ) -> None:
        """A Run as the gateway makes it, with its row; without a sequence one written by hand. `thread`: the number of
        a thread of its own."""
        thread_id = THREAD if thread is None else f"{thread:08d}{THREAD[8:]}"
        given: Manifest = {"agentName": "hello", "graphId": "echo", "threadId": thread_id} | spec
        if sequence is not None:
            given["sequence"] = sequence
            self.rows.add(name, thread_id, sequence, uid=f"uid-{name}")
        meta = {"name": name, **({"uid": uid} if uid else {})}
        body = {"apiVersion": API_VERSION, "kind": "Run", "metadata": meta, "spec": given}
        self._add(RUNS, body | {"status": {"state": "pending"}})

    def change_agent(self, *, annotations: Manifest | None = None, **spec: Any) -> None:
        raw = self.cluster.objects[("agents", "hello")]
        raw["spec"] |= spec
        raw["metadata"].setdefault("annotations", {}).update(annotations or {})
        self.cluster.store(AGENTS, raw)

    def annotate_pod(self, name: str, annotations: Manifest) -> None:
        raw = self.cluster.objects[("pods", name)]
        raw["metadata"]["annotations"] |= annotations
        self.cluster.store(PODS, raw)

    def time(self) -> str:
        """The present time as an annotation holds it."""
        return now().isoformat()

    def delete_agent(self) -> None:
        self.cluster.ask_away(AGENTS, "hello")

    def agent(self) -> Agent | None:
        raw = self.cluster.objects.get(("agents", "hello"))
        return None if raw is None else Agent.from_manifest(raw)

    @property
    def pod_names(self) -> list[str]:
        """Names of the pods that exist."""
        return sorted(name for plural, name in self.cluster.objects if plural == "pods")

    def change_run(self, name: str, **spec: Any) -> None:
        raw = self.cluster.objects[("runs", name)]
        raw["spec"] |= spec
        self.cluster.store(RUNS, raw)

    def run(self, name: str = "r1") -> Run | None:
        raw = self.cluster.objects.get(("runs", name))
        return None if raw is None else Run.from_manifest(raw)

    def pod_fails(self) -> None:
        """The newest pod dies, as its kubelet tells."""
        name = self.lives[-1].name
        self.pods[name].die()
        raw = self.cluster.objects[("pods", name)]
        ended = {"name": "runtime", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        raw["status"] |= {"phase": "Failed", "containerStatuses": [ended]}
        self.cluster.store(PODS, raw)

    @property
    def executed(self) -> list[tuple[str, int]]:
        """(run, attempt) of everything that pods began, pod by pod."""
        return [one for pod in self.lives for one in pod.executed]

    def run_writes(self, name: str = "r1") -> list[str]:
        """Verbs of the writes to a Run object."""
        return [verb for verb, plural, written in self.cluster.writes if (plural, written) == ("runs", name)]

    def _add(self, resource: Resource, body: Manifest) -> None:
        meta = {"namespace": NAMESPACE, "uid": f"uid-{body['metadata']['name']}", "generation": 1}
        body["metadata"] = meta | {"creationTimestamp": now().isoformat()} | body["metadata"]
        self.cluster.store(resource, body)

    def _pod_made(self, raw: Manifest) -> None:
        """The kubelet: the pod runs at once."""
        name = raw["metadata"]["name"]
        env = {one["name"]: one.get("value") for one in raw["spec"]["containers"][0]["env"]}
        self.pods[name] = FakePod(
            name,
            self.rows,
            self.chaos,
            slots=self.slots,
            max_runs=int(env["RUNYARD_MAX_RUNS"] or 0),
            seconds=self.seconds,
            answers=self.answers,
        )
        self.lives.append(self.pods[name])
        running = {"name": "runtime", "state": {"running": {}}}
        raw["status"] = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [running]}
        self.cluster.store(PODS, raw)

    def _pod_deleted(self, name: str) -> None:
        self.pods[name].hand_over()

    async def _start(self) -> None:
        memory: dict[Key, AgentMemory] = {}

        async def thread(key: Key) -> float | None:
            return await self._guarded(reconcile_thread(world, key))

        async def one_agent(key: Key) -> float | None:
            return await self._guarded(reconcile_agent(world, memory, key))

        runs, agents = WorkQueue("runs", thread, workers=8), WorkQueue("agents", one_agent, workers=8)
        links = Links(
            connect=lambda pod: self.pods[pod.name], wake_thread=runs.add, wake_agent=agents.add_after, now=now
        )
        world = World(SETTINGS, self.cluster, self.rows, links, runs, agents, now=now)
        feed = Feed(world)
        takes = {"runs": feed.run, "agents": feed.agent, "pods": feed.pod}
        self.sweep = Sweep(feed)
        await self.sweep.first()
        self.cluster.listener = lambda resource, raw, gone: _take(takes, resource, raw, gone)
        self.world = world
        world.begin()

    async def _guarded(self, work: Coroutine[Any, Any, float | None]) -> float | None:
        if self._crashed.is_set():
            work.close()
            return None
        try:
            return await work
        except Crash:
            self._crashed.set()
            return None


def _take(takes: dict[str, Callable[..., None]], resource: Resource, raw: Manifest, gone: bool) -> None:
    if (take := takes.get(resource.plural)) is not None:
        take(raw, deleted=gone)


Scenario = Callable[[Stage], Coroutine[Any, Any, None]]


def on_stage(scenario: Scenario, *, crash_at: int | None = None, **facts: Any) -> Stage:
    """Plays a scenario from the start, with a crash at one point if wanted, and gives the stage as it is then."""

    async def play() -> Stage:
        stage = Stage(Chaos(at=crash_at), **facts)
        await scenario(stage)
        if stage.world is not None:
            await stage.stop()
        for pod in stage.lives:
            pod.die()
        return stage

    return run_in_fake_time(play())
