"""What the status of an Agent says: conditions, numbers, and when it is written."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.builders import NOW, agent, ago, pod

from runyard_api.agent import Agent, AgentStatus
from runyard_api.conditions import AgentReason, ConditionType, find_condition
from runyard_operator.agents.decide import decide
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentObserved, AgentPlan, PodSeen, StartsSeen, Wanted
from runyard_operator.agents.problems import Problem
from runyard_operator.seen import ContainerView

HELLO = agent()
HASH = hash_of(HELLO.spec)
OLD = "00000000"
ZERO = agent(replicas={"min": 0, "max": 3})
NOBODY = Wanted(now=0, kept=0)


def plan(*pods: PodSeen, of: Agent = HELLO, **facts: Any) -> AgentPlan:
    seen = AgentObserved(of, pods, **facts)
    made = decide(seen, NOW, env_secret_prefix="runyard-env-")
    assert decide(seen, NOW, env_secret_prefix="runyard-env-") == made
    return made


def usable(index: int = 0, hash8: str = HASH, **facts: Any) -> PodSeen:
    defaults: dict[str, Any] = {"usable": True, "answers_since": ago(600), "graphs": ("echo",)}
    return PodSeen(pod(f"hello-{hash8}-{index}", hash8=hash8), **(defaults | facts))


def starting(index: int = 0, hash8: str = HASH) -> PodSeen:
    container = ContainerView(waiting_reason="ContainerCreating")
    return PodSeen(pod(f"hello-{hash8}-{index}", hash8=hash8, phase="Pending", ip=None, container=container))


def ready(made: AgentPlan, kind: ConditionType = ConditionType.READY) -> tuple[str, str, str]:
    assert made.status is not None
    found = find_condition(made.status.conditions, kind)
    assert found is not None
    return found.status.value, found.reason, found.message


def progressing(made: AgentPlan) -> tuple[str, str]:
    return ready(made, ConditionType.PROGRESSING)[:2]


THREE = agent(replicas={"min": 3, "max": 3})
H3 = hash_of(THREE.spec)


def test_a_replaced_pod_gets_no_new_runs_and_is_shown_as_draining() -> None:
    made = plan(usable(0, OLD, busy=1), usable())
    assert made.pods.retire == {f"hello-{OLD}-0"}
    assert made.status is not None
    shown = {p.name: (p.ready, p.draining) for p in made.status.pods}
    assert shown == {f"hello-{OLD}-0": (True, True), f"hello-{HASH}-0": (True, False)}
    assert made.status.ready_replicas == 1


IMAGE = PodSeen(
    replace(
        starting().pod,
        container=ContainerView(waiting_reason="ErrImagePull", waiting_message="failed to pull: x: not found"),
    )
)
FAILED = Problem(AgentReason.POD_FAILED, "the container ended with exit code 1")
READY: dict[str, tuple[AgentPlan, tuple[str, str, str]]] = {
    "at zero with graphs that are known": (
        plan(of=ZERO, wanted=NOBODY),
        ("True", "ScaledToZero", "a pod is started when there is something to do"),
    ),
    "on the way up from zero": (
        plan(starting(), of=ZERO),
        ("True", "ScaledToZero", "a pod is started when there is something to do"),
    ),
    "on the way up from zero with an image that is gone": (
        plan(IMAGE, of=ZERO),
        ("False", "ImagePullFailed", "image docker.io/example/hello:1: not found"),
    ),
    "at zero before the graphs are known": (
        plan(of=ZERO, wanted=Wanted(discovered=False)),
        ("False", "PodsStarting", "no pod takes runs yet"),
    ),
    "the only pod runs what it may and is replaced": (
        plan(usable(usable=False, spent=True, busy=1), of=agent(maxRunsPerPod=1)),
        ("True", "PodsReplaced", "a fresh pod follows those that took what they may"),
    ),
    "the pod that follows a used-up one starts": (
        plan(starting(), of=agent(maxRunsPerPod=1)),
        ("True", "PodsReplaced", "a fresh pod follows those that took what they may"),
    ),
    "no pod yet": (plan(), ("False", "PodsStarting", "no pod takes runs yet")),
    "one of one": (plan(usable()), ("True", "Available", "1 of 1 pods take runs")),
    "one of three": (plan(usable(0, H3), of=THREE), ("True", "Available", "1 of 3 pods take runs")),
    "an older pod works while the new image can't be pulled": (
        plan(usable(0, OLD), IMAGE),
        ("True", "Available", "1 of 1 pods take runs"),
    ),
    "an image that can't be pulled": (
        plan(IMAGE),
        ("False", "ImagePullFailed", "image docker.io/example/hello:1: not found"),
    ),
    "no node takes the pod": (
        plan(PodSeen(replace(starting().pod, unschedulable="0/3 nodes are available"))),
        ("False", "Unschedulable", "0/3 nodes are available"),
    ),
    "the last pod failed once": (
        plan(starts=StartsSeen(1, None, FAILED)),
        ("False", "PodFailed", "the container ended with exit code 1"),
    ),
    "pods fail again and again": (
        plan(starts=StartsSeen(4, NOW + timedelta(seconds=9), FAILED)),
        (
            "False",
            "CrashLoop",
            "the container ended with exit code 1 (failed 4 times; pods are started ever more slowly)",
        ),
    ),
    "imports fail again and again": (
        plan(starts=StartsSeen(2, None, Problem(AgentReason.IMPORT_FAILED, "No module named 'x'"))),
        ("False", "ImportFailed", "No module named 'x' (failed 2 times; pods are started ever more slowly)"),
    ),
}


@pytest.mark.parametrize("case", READY)
def test_the_ready_condition(case: str) -> None:
    made, wanted = READY[case]
    assert ready(made) == wanted


def test_what_is_in_the_way_of_a_new_template_is_told_while_the_old_one_works() -> None:
    made = plan(usable(0, OLD), IMAGE)
    assert progressing(made) == ("False", "ImagePullFailed")


SECRET = {"envFrom": [{"secretRef": {"name": "other"}}]}
PROGRESSING: dict[str, tuple[AgentPlan, tuple[str, str]]] = {
    "as many as wanted": (plan(usable()), ("False", "UpToDate")),
    "none wanted and none there": (plan(of=ZERO, wanted=NOBODY), ("False", "UpToDate")),
    "more than wanted": (plan(usable(), usable(1), of=ZERO), ("False", "UpToDate")),
    "one is missing": (plan(usable(0, H3), of=THREE, wanted=Wanted(3, 3)), ("True", "PodsStarting")),
    "an older one is still there": (plan(usable(0, OLD), usable()), ("True", "PodsReplaced")),
    "the first one of a new template starts": (plan(usable(0, OLD), starting()), ("True", "PodsReplaced")),
    "a used-up one is replaced": (plan(usable(spent=True, busy=1), starting(1)), ("True", "PodsReplaced")),
    "no image": (plan(IMAGE), ("False", "ImagePullFailed")),
    "pods fail": (plan(starts=StartsSeen(4, None, FAILED)), ("False", "CrashLoop")),
    "a secret that isn't allowed": (plan(of=agent(podTemplate=SECRET)), ("False", "SecretNotAllowed")),
}


@pytest.mark.parametrize("case", PROGRESSING)
def test_the_progressing_condition(case: str) -> None:
    made, wanted = PROGRESSING[case]
    assert progressing(made) == wanted


def test_a_graph_that_an_older_agent_serves_is_a_condition_that_goes_away_again() -> None:
    made = plan(usable(), taken={"echo": "first"})
    told = ("True", "DuplicateGraph", "'echo' is served by Agent 'first'")
    assert ready(made, ConditionType.GRAPH_CONFLICT) == told
    assert made.status is not None
    later = plan(usable(), of=HELLO.model_copy(update={"status": made.status}))
    assert later.status is not None
    assert find_condition(later.status.conditions, ConditionType.GRAPH_CONFLICT) is None


def written(*pods: PodSeen) -> Agent:
    """The Agent as it is after the plan for these pods was carried out."""
    status = plan(*pods).status
    assert status is not None
    return HELLO.model_copy(update={"status": status})


def test_a_status_that_says_it_already_is_not_written_again() -> None:
    assert plan(usable(), of=written(usable())).status is None


def test_a_changed_number_of_busy_slots_alone_is_written_every_two_seconds_at_most() -> None:
    before = written(usable())
    busy = usable(busy=3)
    soon = plan(busy, of=before, status_written=ago(0.5))
    assert (soon.status, soon.due) == (None, NOW + timedelta(seconds=1.5))
    later = plan(busy, of=before, status_written=ago(2))
    assert later.status is not None
    assert later.status.busy == 3


def test_a_status_with_more_than_busy_changed_is_written_at_once() -> None:
    assert plan(of=written(usable()), status_written=NOW).status is not None


def test_a_new_operator_leaves_the_status_until_it_has_heard_of_the_pods() -> None:
    made = plan(starting(), of=written(usable()), hold_until=NOW + timedelta(seconds=4))
    assert (made.status, made.due) == (None, NOW + timedelta(seconds=4))


def test_known_graphs_stay_known_while_no_pod_is_up() -> None:
    made = plan(of=agent(status=AgentStatus(graphs=("echo",)).to_json()))
    assert made.status is not None
    assert made.status.graphs == ("echo",)


def test_the_numbers_are_right_at_zero() -> None:
    made = plan(of=ZERO, wanted=NOBODY).status
    assert made is not None
    assert (made.replicas, made.ready_replicas, made.busy, made.pods) == (0, 0, 0, ())
    assert made.template_hash == HASH


def test_the_template_that_is_told_is_the_one_whose_graphs_are_known() -> None:
    before = agent(status=AgentStatus(template_hash=OLD).to_json())
    made = plan(usable(0, OLD), starting(), of=before, wanted=Wanted(discovered=False)).status
    assert made is not None
    assert made.template_hash == OLD
