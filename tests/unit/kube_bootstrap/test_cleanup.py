"""After an uninstall the pods that Runyard made go, and nothing else."""

from runyard_kube.cleanup import remove_pods
from runyard_kube.client import Listing, Selection
from runyard_kube.errors import Conflict, NotFound
from runyard_kube.resources import Resource


class Pods:
    """Two pods; `failure` is what deleting the first one raises."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.selections: list[Selection] = []
        self.deleted: list[tuple[str, str | None]] = []

    async def list(
        self, resource: Resource, namespace: str | None, *, selection: Selection, metadata_only: bool = False
    ) -> Listing:
        self.selections.append(selection)
        return Listing([{"metadata": {"name": name, "uid": f"uid-{name}"}} for name in ("a", "b")], "1")

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        if self.failure is not None and name == "a":
            raise self.failure
        self.deleted.append((name, uid))


async def test_only_our_pods_are_looked_for_and_each_goes_by_its_uid() -> None:
    pods = Pods()
    assert await remove_pods(pods, "yard-agents") == ["a", "b"]
    assert pods.selections == [Selection(labels="app.kubernetes.io/managed-by=runyard")]
    assert pods.deleted == [("a", "uid-a"), ("b", "uid-b")]


async def test_a_pod_that_is_gone_or_replaced_stops_nothing() -> None:
    for failure in (NotFound("gone", code=404), Conflict("another uid", code=409)):
        pods = Pods(failure)
        await remove_pods(pods, "yard-agents")
        assert pods.deleted == [("b", "uid-b")]
