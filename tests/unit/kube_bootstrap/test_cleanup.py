"""Taking down a release: the operator first, then agent pods, then finalizers; what is gone meanwhile stops nothing."""

import pytest

from runyard_api.crd import Manifest
from runyard_api.names import AGENT_FINALIZER
from runyard_kube.cleanup import AGENT_SECONDS, OPERATOR_SECONDS, OURS, Release, remove_pods, take_down
from runyard_kube.client import Listing, Selection
from runyard_kube.errors import Conflict, KubeError, NotFound
from runyard_kube.resources import AGENTS, DEPLOYMENTS, PODS, Resource

RELEASE = Release("yard", "yard-operator", "part=operator", "yard-agents")
OPERATORS = "part=operator"


class Api:
    """An API server with an operator's pod and two agent pods, each of which leaves after some seconds of `sleep`."""

    def __init__(self, *, operator_for: int = 2, agents_for: int = 3) -> None:
        self.now = 0
        self.leave_at = {"operator": operator_for, "a": agents_for, "b": agents_for}
        self.calls: list[str] = []
        self.finalizers = {"one": [AGENT_FINALIZER, "other/one"], "two": []}
        self.raised: dict[str, KubeError] = {}

    async def sleep(self, seconds: float) -> None:
        self.now += round(seconds)

    async def list(
        self, resource: Resource, namespace: str | None, *, selection: Selection, metadata_only: bool = False
    ) -> Listing:
        if resource == AGENTS:
            self._raise("list agents")
            found: list[Manifest] = [
                {"name": name, "resourceVersion": "7", "finalizers": list(all_)}
                for name, all_ in self.finalizers.items()
            ]
        else:
            names = ["operator"] if selection.labels == OPERATORS else ["a", "b"]
            found = [{"name": name, "uid": f"uid-{name}"} for name in names if self.leave_at[name] > self.now]
        return Listing([{"metadata": one} for one in found], "1")

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest:
        self.calls.append(f"patch {name} at {self.now}")
        if resource == DEPLOYMENTS:
            assert (namespace, body) == ("yard", {"spec": {"replicas": 0}})
        self._raise(f"patch {name}")
        if resource == AGENTS:
            assert body["metadata"]["resourceVersion"] == "7"
            self.finalizers[name] = body["metadata"]["finalizers"]
        return {}

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        assert (resource, namespace, uid) == (PODS, "yard-agents", f"uid-{name}")
        self.calls.append(f"delete {name} at {self.now}" + (" by force" if grace_seconds == 0 else ""))
        self._raise(f"delete {name}")

    def _raise(self, call: str) -> None:
        if error := self.raised.pop(call, None):
            raise error


async def test_each_step_waits_for_the_one_before() -> None:
    api = Api()
    await take_down(api, RELEASE, sleep=api.sleep)
    assert api.calls == ["patch yard-operator at 0", "delete a at 2", "delete b at 2", "patch one at 3"]


async def test_only_our_finalizer_is_taken() -> None:
    api = Api()
    await take_down(api, RELEASE, sleep=api.sleep)
    assert api.finalizers == {"one": ["other/one"], "two": []}


async def test_while_an_operator_is_left_nothing_else_is_touched() -> None:
    api = Api(operator_for=10_000)
    with pytest.raises(TimeoutError, match=f"{OPERATOR_SECONDS} s"):
        await take_down(api, RELEASE, sleep=api.sleep)
    assert api.calls == ["patch yard-operator at 0"]


async def test_a_pod_on_a_dead_node_is_removed_after_its_time() -> None:
    api = Api(agents_for=10_000)
    assert await remove_pods(api, "yard-agents", sleep=api.sleep) == ["a", "b"]
    assert api.calls[2:] == [f"delete {name} at {AGENT_SECONDS} by force" for name in ("a", "b")]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("patch yard-operator", NotFound("gone", code=404)),
        ("delete a", NotFound("gone", code=404)),
        ("delete a", Conflict("another uid", code=409)),
        ("patch one", Conflict("changed", code=409)),
    ],
)
async def test_what_is_gone_or_changed_stops_nothing(call: str, error: KubeError) -> None:
    api = Api()
    api.raised[call] = error
    await take_down(api, RELEASE, sleep=api.sleep)
    assert "delete b at 2" in api.calls
    assert api.finalizers["one"] == ["other/one"]


async def test_without_the_crd_there_is_nothing_to_release() -> None:
    api = Api()
    api.raised["list agents"] = NotFound("no such kind", code=404)
    await take_down(api, RELEASE, sleep=api.sleep)
    assert api.finalizers["one"] == [AGENT_FINALIZER, "other/one"]


def test_only_pods_that_runyard_made_are_looked_for() -> None:
    assert OURS.labels == "app.kubernetes.io/managed-by=runyard"
