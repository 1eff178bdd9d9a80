"""The client's verbs and errors against a real API server."""

import asyncio
import ssl
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.apiserver import ApiServer
from tests.support.manifests import agent, gateway_run, hand_written_run
from tests.support.relay import Relay, relay_to

from runyard_kube.client import ClientSettings, KubeClient, Selection, WatchEvent
from runyard_kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from runyard_kube.login import Login, log_in
from runyard_kube.resources import AGENTS, PODS, RUNS

pytestmark = pytest.mark.apiserver

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"runyard.dev/agent": "hello"}},
    "spec": {"containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 30},
}


async def test_a_list_of_the_metadata_of_nothing_is_empty(kube: KubeClient, namespace: str) -> None:
    assert (await kube.list(RUNS, namespace, metadata_only=True)).items == []


async def test_an_object_is_created_read_patched_and_deleted(kube: KubeClient, namespace: str) -> None:
    created = await kube.create(RUNS, namespace, hand_written_run())
    assert await kube.get(RUNS, namespace, "by-hand") == created
    patched = await kube.patch(RUNS, namespace, "by-hand", {"metadata": {"annotations": {"a": "1", "b": None}}})
    assert patched["metadata"]["annotations"] == {"a": "1"}
    await kube.delete(RUNS, namespace, "by-hand", uid=created["metadata"]["uid"])
    with pytest.raises(NotFound):
        await kube.get(RUNS, namespace, "by-hand")


async def test_pods_are_objects_like_any_other(kube: KubeClient, namespace: str) -> None:
    await kube.create(PODS, namespace, POD)
    found = await kube.list(PODS, namespace, selection=Selection(labels="runyard.dev/agent=hello"))
    assert [pod["metadata"]["name"] for pod in found.items] == ["p"]
    await kube.delete(PODS, namespace, "p", grace_seconds=0)
    assert (await kube.list(PODS, namespace)).items == []


async def test_a_missing_object_is_not_found(kube: KubeClient, namespace: str) -> None:
    with pytest.raises(NotFound) as caught:
        await kube.get(AGENTS, namespace, "none")
    assert (caught.value.code, caught.value.message) == (404, 'agents.runyard.dev "none" not found')
    for call in (kube.patch(AGENTS, namespace, "none", {}), kube.delete(AGENTS, namespace, "none")):
        with pytest.raises(NotFound):
            await call


async def test_a_taken_name_is_already_exists_and_a_conflict_too(kube: KubeClient, namespace: str) -> None:
    await kube.create(AGENTS, namespace, agent())
    with pytest.raises(AlreadyExists) as caught:
        await kube.create(AGENTS, namespace, agent())
    assert isinstance(caught.value, Conflict)


async def test_another_object_of_the_same_name_is_not_deleted(kube: KubeClient, namespace: str) -> None:
    await kube.create(AGENTS, namespace, agent())
    with pytest.raises(Conflict) as caught:
        await kube.delete(AGENTS, namespace, "hello", uid="00000000-0000-0000-0000-000000000000")
    assert not isinstance(caught.value, AlreadyExists)


async def test_a_patch_of_an_older_version_is_a_conflict(kube: KubeClient, namespace: str) -> None:
    created = await kube.create(AGENTS, namespace, agent())
    await kube.patch(AGENTS, namespace, "hello", {"spec": {"slots": 2}})
    stale = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "spec": {"slots": 3}}
    with pytest.raises(Conflict):
        await kube.patch(AGENTS, namespace, "hello", stale)


async def test_a_bad_object_is_invalid_with_the_server_s_words(kube: KubeClient, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.slots in body should be greater than or equal to 1") as caught:
        await kube.create(AGENTS, namespace, agent(slots=0))
    assert caught.value.code == 422


@pytest.mark.parametrize(("token", "expected"), [(None, Forbidden), ("Bearer wrong", Unauthorized)], ids=str)
async def test_without_rights(
    api_server: ApiServer, namespace: str, token: str | None, expected: type[KubeError]
) -> None:
    configuration = (await log_in(api_server.kubeconfig)).configuration
    if token is not None:
        configuration.api_key["BearerToken"] = token
    without_certificate = Login(configuration, ssl.create_default_context(cafile=configuration.ssl_ca_cert))
    async with KubeClient(without_certificate) as client:
        with pytest.raises(expected):
            await client.list(RUNS, namespace)


async def test_a_list_is_read_in_pages_as_of_one_moment(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    await asyncio.gather(*(kube.create(RUNS, namespace, gateway_run(namespace)) for _ in range(7)))
    async with await KubeClient.open(api_server.kubeconfig, ClientSettings(page_size=3)) as small:
        listing = await small.list(RUNS, namespace)
    assert len({item["metadata"]["name"] for item in listing.items}) == 7
    assert int(listing.resource_version) >= max(int(item["metadata"]["resourceVersion"]) for item in listing.items)


async def test_a_metadata_only_list_carries_no_spec(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    item = (await kube.list(RUNS, namespace, metadata_only=True)).items[0]
    assert item["metadata"]["name"] == "by-hand"
    assert "spec" not in item
    assert "status" not in item


async def test_a_watch_yields_each_change_after_the_list(kube: KubeClient, namespace: str) -> None:
    start = (await kube.list(RUNS, namespace)).resource_version
    await kube.create(RUNS, namespace, hand_written_run())
    await kube.patch_status(RUNS, namespace, "by-hand", {"state": "running"})
    await kube.delete(RUNS, namespace, "by-hand")
    seen: list[WatchEvent] = []
    async with aclosing(kube.watch(RUNS, namespace, resource_version=start)) as events:
        async for event in events:
            seen.append(event)
            if event.type == "DELETED":
                break
    assert [(event.type, event.object["status"]["state"]) for event in seen] == [
        ("ADDED", "pending"),
        ("MODIFIED", "running"),
        ("DELETED", "running"),
    ]


async def test_an_object_larger_than_any_buffer_comes_through_a_watch(kube: KubeClient, namespace: str) -> None:
    start = (await kube.list(RUNS, namespace)).resource_version
    text = "x" * 1_000_000
    await kube.create(RUNS, namespace, hand_written_run(payload={"input": text}))
    async with aclosing(kube.watch(RUNS, namespace, resource_version=start)) as events:
        first = await anext(events)
    assert first.object["spec"]["payload"]["input"] == text


async def test_a_watch_from_a_version_too_old_is_gone(kube: KubeClient, namespace: str) -> None:
    with pytest.raises(Gone):
        async with aclosing(kube.watch(RUNS, namespace, resource_version="1")) as events:
            await anext(events)


async def test_a_silent_watch_is_given_up(kube: KubeClient, namespace: str) -> None:
    start = (await kube.list(RUNS, namespace)).resource_version
    with pytest.raises(Unavailable, match="the watch of runs broke"):
        async with aclosing(kube.watch(RUNS, namespace, resource_version=start, idle_seconds=0.2)) as events:
            await anext(events)


async def test_a_server_that_is_not_there_is_unavailable(api_server: ApiServer, namespace: str) -> None:
    login = await log_in(api_server.kubeconfig)
    async with relay_to(1) as relay, KubeClient(_through(login, relay)) as client:
        with pytest.raises(Unavailable):
            await client.get(RUNS, namespace, "x")
        await relay.down()
        with pytest.raises(Unavailable) as caught:
            await client.get(RUNS, namespace, "x")
    assert isinstance(caught.value, KubeError)
    assert caught.value.status == 503


async def test_a_server_that_does_not_answer_is_unavailable(api_server: ApiServer, namespace: str) -> None:
    login = await log_in(api_server.kubeconfig)
    async with relay_to(1) as relay, KubeClient(_through(login, relay), ClientSettings(timeout=0.2)) as client:
        relay.silent = True
        with pytest.raises(Unavailable, match=f"GET /apis/runyard.dev/v1alpha1/namespaces/{namespace}/runs/x: "):
            await client.get(RUNS, namespace, "x")


def _through(login: Login, relay: Relay) -> Login:
    login.configuration.host = f"https://127.0.0.1:{relay.port}"
    return login


@pytest.mark.parametrize("text", ["", "clusters: []"], ids=["no such file", "an empty one"])
async def test_a_kubeconfig_that_cannot_be_used_says_so_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    if text:
        path.write_text(text)
    with pytest.raises(Unauthorized, match="no usable Kubernetes credentials: "):
        await KubeClient.open(path)
