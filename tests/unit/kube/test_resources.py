"""Where the API server keeps what."""

import pytest

from runyard_kube.resources import AGENTS, PODS, RUNS, Resource

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (RUNS.path("ns"), "/apis/runyard.dev/v1alpha1/namespaces/ns/runs"),
        (AGENTS.path("ns", "a"), "/apis/runyard.dev/v1alpha1/namespaces/ns/agents/a"),
        (RUNS.path("ns", "r", "status"), "/apis/runyard.dev/v1alpha1/namespaces/ns/runs/r/status"),
        (PODS.path("ns", "p"), "/api/v1/namespaces/ns/pods/p"),
        (PODS.path(None), "/api/v1/pods"),
        (CRDS.path(None, "x"), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x"),
        (RUNS.path("ns", "../../secrets/x"), "/apis/runyard.dev/v1alpha1/namespaces/ns/runs/..%2F..%2Fsecrets%2Fx"),
    ],
)
def test_a_path(path: str, expected: str) -> None:
    assert path == expected
