"""What is decided for an Agent: pods to make and to delete, and what its status says."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.builders import NOW, agent, ago, ended_pod, pod

from runyard_api.agent import Agent, AgentStatus
from runyard_api.conditions import AgentReason, ConditionType, find_condition
from runyard_operator.agents.decide import decide
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentObserved, AgentPlan, PodSeen, StartsSeen
from runyard_operator.agents.problems import Problem
from runyard_operator.seen import ContainerView

HELLO = agent()
HASH = hash_of(HELLO.spec)
OLD = "00000000"


def plan(*pods: PodSeen, of: Agent = HELLO, **facts: Any) -> AgentPlan:
    seen = AgentObserved(of, pods, **facts)
    made = decide(seen, NOW, env_secret_prefix="runyard-env-")
    assert decide(seen, NOW, env_secret_prefix="runyard-env-") == made
    return made


def usable(index: int = 0, hash8: str = HASH, **facts: Any) -> PodSeen:
    defaults: dict[str, Any] = {"usable": True, "graphs": ("echo",)}
    return PodSeen(pod(f"hello-{hash8}-{index}", hash8=hash8), **(defaults | facts))


def starting(index: int = 0, hash8: str = HASH) -> PodSeen:
    container = ContainerView(waiting_reason="ContainerCreating")
    return PodSeen(pod(f"hello-{hash8}-{index}", hash8=hash8, phase="Pending", ip=None, container=container))


def dead(index: int = 0, hash8: str = HASH, **facts: Any) -> PodSeen:
    return PodSeen(ended_pod(f"hello-{hash8}-{index}", hash8=hash8), **facts)


def going(index: int = 0) -> PodSeen:
    return PodSeen(pod(f"hello-{HASH}-{index}", hash8=HASH, deleting=True))


def name(index: int) -> str:
    return f"hello-{HASH}-{index}"


def names(made: AgentPlan) -> list[str]:
    return [one.name for one in made.delete]


def ready(made: AgentPlan, kind: ConditionType = ConditionType.READY) -> tuple[str, str, str]:
    assert made.status is not None
    found = find_condition(made.status.conditions, kind)
    assert found is not None
    return found.status.value, found.reason, found.message


THREE = agent(replicas={"min": 3, "max": 3})
H3 = hash_of(THREE.spec)
CREATE: dict[str, tuple[AgentPlan, tuple[str, ...]]] = {
    "a new Agent gets its pod": (plan(), (name(0),)),
    "an Agent of three gets three": (plan(of=THREE), tuple(f"hello-{H3}-{i}" for i in range(3))),
    "a gap is filled with the lowest free index": (
        plan(usable(0, H3), usable(2, H3), of=THREE),
        (f"hello-{H3}-1",),
    ),
    "a pod that is starting counts": (plan(starting()), ()),
    "an ended pod doesn't count, but its name is taken": (plan(dead()), (name(1),)),
    "a pod that goes away doesn't count, but its name is taken": (plan(going()), (name(1),)),
    "a pod of an older template doesn't count": (plan(usable(0, OLD)), (name(0),)),
    "no pod is made before the delay is over": (
        plan(starts=StartsSeen(2, NOW + timedelta(seconds=3), None)),
        (),
    ),
    "a pod is made when the delay is over": (plan(starts=StartsSeen(2, NOW, None)), (name(0),)),
    "no pod is made for a spec that isn't allowed": (
        plan(of=agent(podTemplate={"envFrom": [{"secretRef": {"name": "other"}}]})),
        (),
    ),
}


@pytest.mark.parametrize("case", CREATE)
def test_pods_made(case: str) -> None:
    made, wanted = CREATE[case]
    assert made.create == wanted


DELETE: dict[str, tuple[AgentPlan, list[str]]] = {
    "a usable pod stays": (plan(usable()), []),
    "an ended pod goes": (plan(dead()), [name(0)]),
    "an ended pod stays until its runs are settled": (plan(dead(needed=True)), []),
    "a pod of an older template that works stays until a new one does": (plan(usable(0, OLD), starting()), []),
    "a pod of an older template goes when a new one takes runs": (plan(usable(0, OLD), usable()), [f"hello-{OLD}-0"]),
    "a pod of an older template stays while it runs something": (plan(usable(0, OLD, busy=1), usable()), []),
    "a pod of an older template that never took runs goes at once": (
        plan(starting(0, OLD), starting()),
        [f"hello-{OLD}-0"],
    ),
    "a pod that goes away already isn't deleted again": (plan(going()), []),
}


@pytest.mark.parametrize("case", DELETE)
def test_pods_deleted(case: str) -> None:
    made, wanted = DELETE[case]
    assert names(made) == wanted


def test_a_replaced_pod_gets_no_new_runs_and_is_shown_as_draining() -> None:
    made = plan(usable(0, OLD, busy=1), usable())
    assert made.retire == {f"hello-{OLD}-0"}
    assert made.status is not None
    assert {p.name: p.draining for p in made.status.pods} == {f"hello-{OLD}-0": True, name(0): False}


IMAGE = PodSeen(
    replace(
        starting().pod,
        container=ContainerView(waiting_reason="ErrImagePull", waiting_message="failed to pull: x: not found"),
    )
)
FAILED = Problem(AgentReason.POD_FAILED, "the container ended with exit code 1")
READY: dict[str, tuple[AgentPlan, tuple[str, str, str]]] = {
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
    assert ready(made, ConditionType.PROGRESSING)[:2] == ("True", "ImagePullFailed")


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
