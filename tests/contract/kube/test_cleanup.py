"""Taking down a release on a real API server: finalizers go, Agents that are being deleted with them."""

import asyncio

import pytest
from tests.support.manifests import agent, hand_written_run

from runyard_api.names import AGENT_FINALIZER, LABEL_MANAGED_BY, MANAGED_BY
from runyard_kube.cleanup import Release, take_down
from runyard_kube.client import KubeClient
from runyard_kube.errors import NotFound
from runyard_kube.resources import AGENTS, DEPLOYMENTS, PODS, RUNS

pytestmark = pytest.mark.apiserver


def pod(name: str, labels: dict[str, str]) -> dict[str, object]:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def operator() -> dict[str, object]:
    labels = {"part": "operator"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "yard-operator"}, "spec": spec}


async def test_nothing_of_the_release_stays_and_everything_else_does(kube: KubeClient, namespace: str) -> None:
    await kube.create(DEPLOYMENTS, namespace, operator())
    for name in ("kept", "deleted"):
        await kube.create(AGENTS, namespace, agent(name))
        await kube.patch(AGENTS, namespace, name, {"metadata": {"finalizers": [AGENT_FINALIZER]}})
    await kube.delete(AGENTS, namespace, "deleted")
    await kube.create(RUNS, namespace, hand_written_run())
    await kube.create(PODS, namespace, pod("ours", {LABEL_MANAGED_BY: MANAGED_BY}))
    await kube.create(PODS, namespace, pod("theirs", {}))

    await asyncio.wait_for(take_down(kube, Release(namespace, "yard-operator", "part=operator", namespace)), 10)

    assert (await kube.get(DEPLOYMENTS, namespace, "yard-operator"))["spec"]["replicas"] == 0
    assert "finalizers" not in (await kube.get(AGENTS, namespace, "kept"))["metadata"]
    await kube.get(RUNS, namespace, "by-hand")
    await kube.get(PODS, namespace, "theirs")
    for resource, name in ((AGENTS, "deleted"), (PODS, "ours")):
        with pytest.raises(NotFound):
            await kube.get(resource, namespace, name)
