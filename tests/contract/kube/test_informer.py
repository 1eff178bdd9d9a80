"""The informer against a real API server whose connections break, end and come back."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from tests.support.apiserver import ApiServer
from tests.support.manifests import hand_written_run
from tests.support.relay import Relay, relay_to

from runyard_api.run import Run
from runyard_kube.client import KubeClient, Selection, WatchEvent
from runyard_kube.informer import Informer, Target
from runyard_kube.login import log_in
from runyard_kube.resources import RUNS

pytestmark = pytest.mark.apiserver

THREAD = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e"


class Forgotten(KubeClient):
    """A client whose next watch can be made to ask for a version that the server no longer has."""

    forgets = False

    async def watch(self, *args: Any, resource_version: str, **options: Any) -> AsyncGenerator[WatchEvent, None]:
        version = "1" if self.forgets else resource_version
        self.forgets = False
        async with aclosing(super().watch(*args, resource_version=version, **options)) as events:
            async for event in events:
                yield event


class Seen:
    """Records changes as (name, old state, new state) and lets a test wait for them."""

    def __init__(self, informer: Informer[Run]) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []
        self._grown = asyncio.Event()
        informer.subscribe(self._take)

    def _take(self, old: Run | None, new: Run | None) -> None:
        either = new or old
        assert either is not None
        before, after = (run.state.value if run else None for run in (old, new))
        self.changes.append((either.metadata.name, before, after))
        self._grown.set()

    async def until(self, *expected: tuple[str, str | None, str | None]) -> None:
        """Waits until every expected change was seen, at most 10 s, and nothing else; then forgets them."""
        async with asyncio.timeout(10):
            while not set(expected) <= set(self.changes):
                self._grown.clear()
                await self._grown.wait()
        assert sorted(self.changes, key=str) == sorted(expected, key=str)
        self.changes.clear()


@pytest_asyncio.fixture
async def relay(api_server: ApiServer) -> AsyncIterator[Relay]:
    host = (await log_in(api_server.kubeconfig)).host
    async with relay_to(int(host.rsplit(":", 1)[1])) as between:
        yield between


@pytest_asyncio.fixture
async def far(api_server: ApiServer, relay: Relay) -> AsyncIterator[Forgotten]:
    """A client behind the relay."""
    login = await log_in(api_server.kubeconfig)
    login.configuration.host = f"https://127.0.0.1:{relay.port}"
    async with Forgotten(login) as client:
        yield client


async def _briefly(seconds: float) -> None:
    assert seconds > 0
    await asyncio.sleep(0.02)


@asynccontextmanager
async def _informer(client: KubeClient, target: Target) -> AsyncIterator[Informer[Run]]:
    """A started and synced informer, whose waits between tries are cut short."""
    informer = Informer(client, target, Run.from_manifest, sleep=_briefly)
    informer.start()
    try:
        async with asyncio.timeout(10):
            await informer.synced.wait()
        yield informer
    finally:
        await informer.stop()


async def test_it_holds_what_exists_and_follows_what_changes(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run("a"))
    async with _informer(kube, Target(RUNS, namespace)) as informer:
        assert [run.metadata.name for run in informer.items()] == ["a"]
        seen = Seen(informer)
        await kube.create(RUNS, namespace, hand_written_run("b"))
        await seen.until(("b", None, "pending"))
        await kube.patch_status(RUNS, namespace, "b", {"state": "running"})
        await seen.until(("b", "pending", "running"))
        await kube.delete(RUNS, namespace, "b")
        await seen.until(("b", "running", None))
        assert informer.get("b") is None
        assert informer.get("a") is not None


async def test_it_goes_on_after_a_dropped_watch_without_losing_a_change(
    kube: KubeClient, far: Forgotten, relay: Relay, namespace: str
) -> None:
    await kube.create(RUNS, namespace, hand_written_run("a"))
    await kube.create(RUNS, namespace, hand_written_run("b"))
    async with _informer(far, Target(RUNS, namespace)) as informer:
        seen = Seen(informer)
        await relay.down()
        await kube.patch_status(RUNS, namespace, "a", {"state": "running"})
        await kube.delete(RUNS, namespace, "b")
        await kube.create(RUNS, namespace, hand_written_run("c"))
        await relay.up()
        await seen.until(("a", "pending", "running"), ("b", "pending", None), ("c", None, "pending"))
        assert {run.metadata.name for run in informer.items()} == {"a", "c"}
        await kube.delete(RUNS, namespace, "c")
        await seen.until(("c", "pending", None))
        assert informer.failures == 0


async def test_what_was_deleted_during_a_gap_too_long_leaves_no_ghost(
    kube: KubeClient, far: Forgotten, relay: Relay, namespace: str
) -> None:
    await kube.create(RUNS, namespace, hand_written_run("kept"))
    await kube.create(RUNS, namespace, hand_written_run("ghost"))
    async with _informer(far, Target(RUNS, namespace)) as informer:
        seen = Seen(informer)
        await relay.down()
        await kube.delete(RUNS, namespace, "ghost")
        await kube.create(RUNS, namespace, hand_written_run("new"))
        far.forgets = True
        await relay.up()
        await seen.until(("ghost", "pending", None), ("new", None, "pending"))
        assert {run.metadata.name for run in informer.items()} == {"kept", "new"}
        assert not far.forgets


async def test_a_connection_that_falls_silent_is_replaced(
    kube: KubeClient, far: Forgotten, relay: Relay, namespace: str
) -> None:
    async with _informer(far, Target(RUNS, namespace, idle_seconds=0.3)) as informer:
        seen = Seen(informer)
        async with asyncio.timeout(10):
            await relay.next_connection()
        await kube.create(RUNS, namespace, hand_written_run("a"))
        await seen.until(("a", None, "pending"))


async def test_it_waits_for_a_server_that_is_not_there_yet(
    kube: KubeClient, far: Forgotten, relay: Relay, namespace: str
) -> None:
    await relay.down()
    await kube.create(RUNS, namespace, hand_written_run("a"))
    tried = asyncio.Semaphore(0)

    async def counted(seconds: float) -> None:
        tried.release()
        await _briefly(seconds)

    informer = Informer(far, Target(RUNS, namespace), Run.from_manifest, sleep=counted)
    informer.start()
    async with asyncio.timeout(10):
        for _ in range(3):
            await tried.acquire()
        assert not informer.synced.is_set()
        assert informer.failures >= 3
        await relay.up()
        await informer.synced.wait()
    assert informer.get("a") is not None
    await informer.stop()


async def test_a_selection_covers_what_it_says_and_drops_what_leaves_it(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run("other"))
    await kube.create(RUNS, namespace, hand_written_run("mine", threadId=THREAD))
    selection = Selection(fields=f"spec.threadId={THREAD},status.state=pending")
    async with _informer(kube, Target(RUNS, namespace, selection)) as informer:
        seen = Seen(informer)
        assert [run.metadata.name for run in informer.items()] == ["mine"]
        await kube.patch_status(RUNS, namespace, "mine", {"state": "success"})
        await seen.until(("mine", "pending", None))


async def test_it_stops_at_once_in_the_middle_of_a_watch(kube: KubeClient, namespace: str) -> None:
    async with _informer(kube, Target(RUNS, namespace)) as informer:
        async with asyncio.timeout(1):
            await informer.stop()
        await informer.stop()
