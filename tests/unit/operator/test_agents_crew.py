"""Which pods of an Agent are made, retired, marked and deleted."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.builders import NOW, agent, ago, ended_pod, pod

from runyard_api.agent import Agent
from runyard_api.names import ANNOTATION_DRAINING
from runyard_operator.agents.crew import plan_pods
from runyard_operator.agents.decide import decide
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentObserved, PodSeen, PodsPlan, StartsSeen, Wanted
from runyard_operator.seen import ContainerView

HELLO = agent(replicas={"min": 0, "max": 5, "idleSeconds": 100}, drainSeconds=30)
HASH = hash_of(HELLO.spec)
OLD = "00000000"


def plan(
    *pods: PodSeen, of: Agent = HELLO, wanted: int | Wanted = 1, may_create: bool = True, **facts: Any
) -> PodsPlan:
    """`wanted` as a number: that many now and kept."""
    pods_wanted = Wanted(wanted, wanted) if isinstance(wanted, int) else wanted
    seen = AgentObserved(of, pods, wanted=pods_wanted, **facts)
    return plan_pods(seen, HASH, NOW, may_create=may_create)


def usable(index: int = 0, hash8: str = HASH, **facts: Any) -> PodSeen:
    defaults: dict[str, Any] = {"usable": True, "answers_since": ago(600), "graphs": ("echo",)}
    return PodSeen(pod(f"hello-{hash8}-{index}", hash8=hash8), **(defaults | facts))


def old(index: int = 0, **facts: Any) -> PodSeen:
    return usable(index, OLD, **facts)


def unheard(index: int = 0, hash8: str = HASH) -> PodSeen:
    return usable(index, hash8, usable=False, answers_since=None, graphs=())


def starting(index: int = 0, hash8: str = HASH) -> PodSeen:
    container = ContainerView(waiting_reason="ContainerCreating")
    return PodSeen(pod(f"hello-{hash8}-{index}", hash8=hash8, phase="Pending", ip=None, container=container))


def dead(index: int = 0, hash8: str = HASH, **facts: Any) -> PodSeen:
    return PodSeen(ended_pod(f"hello-{hash8}-{index}", hash8=hash8), **facts)


def going(index: int = 0) -> PodSeen:
    return PodSeen(pod(f"hello-{HASH}-{index}", hash8=HASH, deleting=True))


def marked(one: PodSeen, since: datetime | str = NOW) -> PodSeen:
    text = since if isinstance(since, str) else since.isoformat()
    meta = one.pod.metadata
    annotations = meta.annotations | {ANNOTATION_DRAINING: text}
    view = replace(one.pod, metadata=meta.model_copy(update={"annotations": annotations}))
    return replace(one, pod=view, usable=False)


def spent(index: int = 0, **facts: Any) -> PodSeen:
    return usable(index, usable=False, spent=True, **facts)


def name(index: int, hash8: str = HASH) -> str:
    return f"hello-{hash8}-{index}"


UNDISCOVERED = Wanted(3, 3, discovered=False)
CREATE: dict[str, tuple[PodsPlan, tuple[int, ...]]] = {
    "none when none is wanted": (plan(wanted=0), ()),
    "as many as are wanted": (plan(wanted=3), (0, 1, 2)),
    "one to begin with while the graphs of the template aren't known": (plan(wanted=UNDISCOVERED), (0,)),
    "no second one while the first hasn't told": (plan(starting(), wanted=UNDISCOVERED), ()),
    "a gap is filled with the lowest free index": (plan(usable(0), usable(2), wanted=3), (1,)),
    "a pod that is starting counts": (plan(starting()), ()),
    "an ended pod doesn't count, but its name is taken": (plan(dead()), (1,)),
    "a pod that goes away doesn't count, but its name is taken": (plan(going()), (1,)),
    "a marked pod doesn't count": (plan(marked(usable(busy=1))), (1,)),
    "a pod that says that it drains doesn't count": (plan(usable(stopping=True, busy=1)), (1,)),
    "those that were wanted lately are kept but not made again": (plan(usable(), wanted=Wanted(1, 3)), ()),
    "no pod is made before the delay is over": (plan(starts=StartsSeen(2, NOW + timedelta(seconds=3))), ()),
    "a pod is made when the delay is over": (plan(starts=StartsSeen(2, NOW)), (0,)),
    "no pod is made for a spec that isn't allowed": (plan(may_create=False), ()),
    "the first of a new template beside the old ones": (plan(old(0), old(1), old(2), wanted=3), (0,)),
    "no second one of a new template while the first starts": (plan(old(0), old(1), starting(), wanted=3), ()),
    "the next of a new template once the one before works": (plan(old(0), old(1), usable(), wanted=3), (1,)),
    "no more of a new template than are wanted": (plan(old(0), old(1), usable()), ()),
    "a used-up pod is replaced while it still runs something": (plan(spent(busy=1)), (1,)),
    "used-up pods are at most one more than there may be": (
        plan(*(spent(i, busy=1) for i in range(6)), wanted=5),
        (),
    ),
}


@pytest.mark.parametrize("case", CREATE)
def test_pods_made(case: str) -> None:
    made, wanted = CREATE[case]
    assert made.create == tuple(name(index) for index in wanted)


DELETE: dict[str, tuple[PodsPlan, list[str]]] = {
    "a usable pod stays": (plan(usable()), []),
    "an ended pod goes": (plan(dead()), [name(0)]),
    "an ended pod stays until its runs are settled": (plan(dead(needed=True)), []),
    "an old pod that works stays until a new one does": (plan(old(), starting()), []),
    "an old pod goes when a new one takes runs": (plan(old(), usable()), [name(0, OLD)]),
    "an old pod stays while it runs something": (plan(old(busy=1), usable()), []),
    "an old pod that never took runs goes at once": (plan(starting(0, OLD), starting()), [name(0, OLD)]),
    "old pods that haven't spoken to this operator yet stay": (plan(unheard(0, OLD), starting()), []),
    "of three old pods one goes for each new one that works": (
        plan(old(0), old(1), old(2), usable(), wanted=3),
        [name(0, OLD)],
    ),
    "old pods go at once when nothing is to do": (plan(old(0), wanted=Wanted(0, 2)), [name(0, OLD)]),
    "old pods stay until the new template has told its graphs": (
        plan(old(0), old(1), usable(), wanted=Wanted(1, 3, discovered=False)),
        [],
    ),
    "a pod that goes away already isn't deleted again": (plan(going()), []),
    "a pod that isn't needed goes": (plan(usable(0), usable(1), wanted=1), [name(1)]),
    "the last one goes too if none is needed": (plan(usable(0), wanted=0), [name(0)]),
    "a pod that was needed lately stays": (plan(usable(0), usable(1), wanted=Wanted(0, 2)), []),
    "a pod that isn't needed but runs something stays": (plan(usable(0, busy=1), wanted=0), []),
    "a pod that isn't needed but hasn't spoken stays": (plan(unheard(), wanted=0), []),
    "a pod that isn't needed before it has come up goes": (plan(starting(), wanted=0), [name(0)]),
    "a pod that came up after it was needed stays for as long as one that idles": (
        plan(usable(0, answers_since=ago(99)), wanted=0),
        [],
    ),
    "a marked pod goes when it is idle": (plan(marked(usable()), usable(1)), [name(0)]),
    "a marked pod stays while it runs something": (plan(marked(usable(busy=1)), usable(1)), []),
    "a marked pod goes when its time is over": (plan(marked(usable(busy=1), ago(30)), usable(1)), [name(0)]),
    "a mark from the future counts from now": (
        plan(marked(usable(busy=1), NOW + timedelta(hours=1)), usable(1)),
        [],
    ),
    "a used-up pod goes when its runs have ended": (plan(spent(), usable(1)), [name(0)]),
    "a used-up pod stays for as long as its runs take": (plan(spent(busy=1), usable(1)), []),
}


@pytest.mark.parametrize("case", DELETE)
def test_pods_deleted(case: str) -> None:
    made, wanted = DELETE[case]
    assert [one.name for one in made.delete] == wanted


def test_an_old_pod_with_runs_is_marked_so_that_its_time_runs() -> None:
    made = plan(old(busy=1), usable())
    assert ([one.name for one in made.mark], set(made.retire)) == ([name(0, OLD)], {name(0, OLD)})
    later = plan(marked(old(busy=1), ago(10)), usable())
    assert (later.mark, later.due) == ((), NOW + timedelta(seconds=20))


def test_a_mark_that_a_person_made_gets_its_time() -> None:
    made = plan(marked(usable(busy=1), "true"), usable(1))
    assert [one.name for one in made.mark] == [name(0)]


def test_pods_that_are_not_needed_get_no_new_runs_and_are_never_marked() -> None:
    made = plan(usable(0, busy=3), usable(1, busy=1), usable(2, busy=2), wanted=1)
    assert (set(made.retire), made.mark, made.delete) == ({name(1), name(2)}, (), ())
    again = plan(usable(0, busy=3), usable(1, busy=4, retired=True), usable(2, busy=2, retired=True), wanted=1)
    assert again.retire == {name(1), name(2)}
    assert plan(usable(0), usable(1, retired=True), wanted=2).retire == frozenset()


def test_it_looks_again_when_a_young_pod_has_idled_for_long_enough() -> None:
    assert plan(usable(0, answers_since=ago(40)), wanted=0).due == NOW + timedelta(seconds=60)


@pytest.mark.parametrize("one", [dead(needed=True), spent(needed=True), marked(usable(needed=True))])
def test_it_looks_again_while_a_pod_that_is_to_go_waits_for_the_ends_of_its_runs(one: PodSeen) -> None:
    made = plan(one, usable(1))
    assert (made.delete, made.due) == ((), NOW + timedelta(seconds=1))
    assert plan(usable(needed=True)).due is None


def deleted(*pods: PodSeen) -> Any:
    meta = HELLO.metadata.model_copy(update={"deletion_timestamp": ago(1)})
    gone = HELLO.model_copy(update={"metadata": meta})
    return decide(AgentObserved(gone, pods), NOW, env_secret_prefix="runyard-env-")


def test_a_deleted_agent_lets_its_runs_end_then_its_pods_go_then_it_is_released() -> None:
    first = deleted(usable(0, busy=1), usable(1), spent(2, busy=1), old(3, busy=1))
    assert [one.name for one in first.pods.mark] == [name(3, OLD), name(0), name(2)]
    assert [one.name for one in first.pods.delete] == [name(1)]
    assert (first.pods.create, first.release) == ((), False)
    late = deleted(marked(usable(0, busy=1), ago(30)))
    assert ([one.name for one in late.pods.delete], late.release) == ([name(0)], False)
    assert deleted(going()).release
    assert deleted().release
