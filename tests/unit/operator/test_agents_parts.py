"""Pods of Agents: their manifests, what is wrong with them, how often they are started."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.builders import NOW, agent, ended_pod, pod

from runyard_api.conditions import AgentReason
from runyard_api.crd import Manifest
from runyard_operator.agents.manifests import PodIdentity, agent_pod, hash_of
from runyard_operator.agents.problems import Problem, problem_of_pod, problem_of_spec
from runyard_operator.agents.starts import DELAYS, STEADY_SECONDS, Starts
from runyard_operator.seen import ContainerView, PodView, pod_of
from runyard_process.logs import LogSettings

IDENTITY = PodIdentity("hello-aaaaaaaa-0", "nonce", "f" * 64)
TEMPLATE = {
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "MODEL", "value": "m"}],
    "envFrom": [{"secretRef": {"name": "runyard-env-keys"}}],
    "resources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}


def made(**spec: Any) -> Manifest:
    return agent_pod(agent(**spec), IDENTITY, database_secret="runyard-database", logs=LogSettings("json", 30))


def container(**spec: Any) -> Manifest:
    one: Manifest = made(**spec)["spec"]["containers"][0]
    return one


def environment(**spec: Any) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(**spec)["env"]}


def test_a_pod_meets_pod_security_restricted() -> None:
    spec, own = made()["spec"], container()["securityContext"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")


def test_a_pod_may_write_to_tmp_and_its_home_alone() -> None:
    assert {m["mountPath"] for m in container()["volumeMounts"]} == {"/tmp", environment()["HOME"]}
    assert all("emptyDir" in volume for volume in made()["spec"]["volumes"])


def test_a_pod_is_owned_by_its_agent_and_found_by_labels() -> None:
    meta = made()["metadata"]
    owner = meta["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Agent", "hello", "uid-hello", True)
    assert "blockOwnerDeletion" not in owner
    assert meta["labels"]["runyard.dev/agent"] == "hello"
    assert meta["labels"]["runyard.dev/template-hash"] == hash_of(agent().spec)
    assert meta["annotations"] == {"runyard.dev/nonce": "nonce"}


def test_a_pod_carries_the_hash_of_its_token_and_the_database_by_secret() -> None:
    env = environment(slots=7, runDefaults={"recursionLimit": 30})
    assert env["RUNYARD_TOKEN_SHA256"] == "f" * 64
    assert env["RUNYARD_DATABASE_URL"] == {"secretKeyRef": {"name": "runyard-database", "key": "url"}}
    assert env["RUNYARD_POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert (env["RUNYARD_SLOTS"], env["RUNYARD_RECURSION_LIMIT"]) == ("7", "30")
    assert "RUNYARD_GRAPHS" not in env


def test_a_pod_logs_as_the_operator_does() -> None:
    env = environment()
    assert (env["RUNYARD_LOG_FORMAT"], env["RUNYARD_LOG_LEVEL"]) == ("json", "warning")


def test_a_pod_knows_how_many_runs_it_may_take() -> None:
    assert environment()["RUNYARD_MAX_RUNS"] == "0"
    assert environment(maxRunsPerPod=3)["RUNYARD_MAX_RUNS"] == "3"


@pytest.mark.parametrize(("drain", "step"), [(0, 60), (60, 60), (600, 600)])
def test_a_pod_has_the_time_that_a_step_may_take_and_what_the_runtime_needs_after_it(drain: int, step: int) -> None:
    assert environment(drainSeconds=drain)["RUNYARD_DRAIN_SECONDS"] == str(step)
    assert made(drainSeconds=drain)["spec"]["terminationGracePeriodSeconds"] == step + 40


def test_graphs_of_the_spec_reach_the_runtime() -> None:
    assert environment(graphs={"b": "./b.py:g", "a": "./a.py:g"})["RUNYARD_GRAPHS"] == '{"a":"./a.py:g","b":"./b.py:g"}'


def test_what_the_template_may_say_is_in_the_pod() -> None:
    spec, own = made(podTemplate=TEMPLATE)["spec"], container(podTemplate=TEMPLATE)
    assert spec["imagePullSecrets"] == TEMPLATE["imagePullSecrets"]
    assert spec["nodeSelector"] == TEMPLATE["nodeSelector"]
    assert TEMPLATE["tolerations"][0] in spec["tolerations"]  # type: ignore[index]
    assert own["envFrom"] == TEMPLATE["envFrom"]
    assert own["resources"] == TEMPLATE["resources"]
    assert own["imagePullPolicy"] == "IfNotPresent"
    assert own["env"][0] == {"name": "MODEL", "value": "m"}


def test_a_lost_node_costs_ten_seconds() -> None:
    seconds = {t["key"]: t["tolerationSeconds"] for t in made()["spec"]["tolerations"]}
    assert seconds == {"node.kubernetes.io/not-ready": 10, "node.kubernetes.io/unreachable": 10}


def test_a_pod_is_probed_at_the_named_port_and_read_back_with_it() -> None:
    own = container()
    probes = [own[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert probes == [{"path": "/healthz", "port": "runtime"}] * 3
    stored = made()
    stored["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    assert pod_of(stored).port == 8123


CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "the image": ({"image": "other:2"}, True),
    "graphs": ({"graphs": {"a": "./a.py:g"}}, True),
    "slots": ({"slots": 3}, True),
    "the template": ({"podTemplate": {"env": [{"name": "A", "value": "1"}]}}, True),
    "the recursion limit": ({"runDefaults": {"recursionLimit": 5}}, True),
    "the number of pods": ({"replicas": {"min": 2, "max": 2}}, False),
    "the time to live of runs": ({"runDefaults": {"ttlSecondsAfterFinished": 5}}, False),
    "the runs per pod": ({"maxRunsPerPod": 1}, True),
    "any number of runs per pod": ({"maxRunsPerPod": 0}, False),
    "the time to drain": ({"drainSeconds": 5}, False),
    "the deadline": ({"pendingDeadlineSeconds": 5}, False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_pods_are_replaced_when_what_they_depend_on_changed(what: str) -> None:
    spec, replaced = CHANGES[what]
    assert (hash_of(agent(**spec).spec) != hash_of(agent().spec)) is replaced


def waiting(reason: str, message: str = "") -> PodView:
    return pod(phase="Pending", container=ContainerView(waiting_reason=reason, waiting_message=message))


PULL = (
    'Back-off pulling image "x:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image '
    '"docker.io/library/x:1": failed to resolve reference "docker.io/library/x:1": docker.io/library/x:1: not found'
)
PROBLEMS: dict[str, tuple[PodView, tuple[str, str] | None]] = {
    "a running pod": (pod(), None),
    "a pod that is being made": (waiting("ContainerCreating"), None),
    "an image that isn't there": (waiting("ImagePullBackOff", PULL), ("ImagePullFailed", "image x:1: not found")),
    "an image name that makes no sense": (
        waiting("InvalidImageName", 'Failed to apply default image tag "X": couldn\'t parse image name: invalid'),
        ("ImagePullFailed", "image x:1: invalid"),
    ),
    "a Secret that isn't there": (
        waiting("CreateContainerConfigError", 'secret "runyard-env-x" not found'),
        ("SecretNotFound", 'secret "runyard-env-x" not found'),
    ),
    "a container that can't be made": (waiting("CreateContainerError", "no such file"), ("PodFailed", "no such file")),
    "a pod without a node": (pod(phase="Pending", unschedulable="0/1 nodes"), ("Unschedulable", "0/1 nodes")),
    "a failed import": (
        ended_pod(said='{"reason": "ImportFailed", "message": "No module named x"}'),
        ("ImportFailed", "No module named x"),
    ),
    "a project without graphs, told in the last line of its log": (
        ended_pod(said='noise\n{"reason":"NoGraphs","message":"langgraph.json names no graphs"}\n'),
        ("NoGraphs", "langgraph.json names no graphs"),
    ),
    "a reason of a newer runtime": (
        ended_pod(said='{"reason":"DatabaseUnavailable","message":"no answer"}'),
        ("PodFailed", "DatabaseUnavailable: no answer"),
    ),
    "a crash": (
        ended_pod(code=3, said="Traceback\nValueError: no"),
        ("PodFailed", "the container ended with exit code 3: ValueError: no"),
    ),
    "out of memory": (
        ended_pod(code=137, reason="OOMKilled"),
        ("PodFailed", "the container ended with exit code 137 (OOMKilled)"),
    ),
    "an eviction": (
        pod(phase="Failed", phase_reason="Evicted", phase_message="low on memory", container=ContainerView()),
        ("PodFailed", "low on memory"),
    ),
}


@pytest.mark.parametrize("what", PROBLEMS)
def test_what_is_wrong_with_a_pod(what: str) -> None:
    seen, wanted = PROBLEMS[what]
    found = problem_of_pod(seen, "x:1")
    assert (found and (found.reason.value, found.message)) == wanted


def test_a_secret_needs_the_prefix_of_the_release() -> None:
    spec = agent(podTemplate={"envFrom": [{"secretRef": {"name": "prod-db"}}]}).spec
    found = problem_of_spec(spec, env_secret_prefix="runyard-env-")
    assert found is not None
    assert found.reason is AgentReason.SECRET_NOT_ALLOWED
    assert "'prod-db'" in found.message
    assert problem_of_spec(spec, env_secret_prefix="prod-") is None


PROBLEM = Problem(AgentReason.POD_FAILED, "no")


def test_each_failure_in_a_row_makes_the_next_start_wait_longer() -> None:
    starts, delays = Starts(), []
    for number in range(len(DELAYS) + 2):
        starts.note_failure(f"pod-{number}", PROBLEM, NOW)
        assert starts.not_before is not None
        delays.append((starts.not_before - NOW).total_seconds())
    assert delays == [*DELAYS, DELAYS[-1], DELAYS[-1]]


def test_the_end_of_one_pod_counts_once() -> None:
    starts = Starts()
    for _ in range(3):
        starts.note_failure("pod", PROBLEM, NOW)
    assert starts.failures == 1


def test_a_pod_that_took_runs_for_a_while_begins_the_count_anew() -> None:
    starts = Starts()
    for number in range(4):
        starts.note_failure(f"pod-{number}", PROBLEM, NOW)
    starts.note_usable(True, NOW)
    starts.note_failure("steady", PROBLEM, NOW + timedelta(seconds=STEADY_SECONDS))
    assert starts.failures == 1


def test_a_pod_that_took_runs_only_for_a_moment_does_not() -> None:
    starts = Starts()
    for number in range(4):
        starts.note_failure(f"pod-{number}", PROBLEM, NOW)
    starts.note_usable(True, NOW)
    starts.note_failure("short", PROBLEM, NOW + timedelta(seconds=5))
    assert starts.failures == 5


def test_a_steady_pod_clears_the_past() -> None:
    starts = Starts()
    starts.note_failure("pod", PROBLEM, NOW)
    starts.note_usable(True, NOW)
    starts.note_usable(True, NOW + timedelta(seconds=STEADY_SECONDS))
    assert (starts.failures, starts.problem, starts.not_before) == (0, None, None)
