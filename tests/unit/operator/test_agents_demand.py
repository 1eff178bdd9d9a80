"""How many pods an Agent needs."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.builders import NOW, agent, ago

from runyard_api.names import ANNOTATION_WANTED_AT
from runyard_operator.agents.demand import Demand, Load, desired_pods
from runyard_operator.agents.observe import wanted_at

SPEC: dict[str, Any] = {"slots": 10, "replicas": {"min": 0, "max": 4}}


def desired(load: Load, **spec: Any) -> int:
    return desired_pods(agent(**(SPEC | spec)).spec, load, NOW)


CASES: dict[str, tuple[int, int]] = {
    "nothing to do": (desired(Load()), 0),
    "nothing to do, but some are kept": (desired(Load(), replicas={"min": 2, "max": 4}), 2),
    "one run": (desired(Load(dispatchable=1)), 1),
    "one pod full": (desired(Load(running=10)), 1),
    "one more than a pod takes": (desired(Load(running=10, dispatchable=1)), 2),
    "more than there may be": (desired(Load(running=40, dispatchable=100)), 4),
    "a pod for each run": (desired(Load(running=1, dispatchable=2), maxRunsPerPod=1), 3),
    "pods that take more runs than they have slots": (desired(Load(dispatchable=20), maxRunsPerPod=50), 2),
    "a template that isn't discovered": (desired(Load(discovered=False)), 1),
    "a request that waits for graph code": (desired(Load(wanted_at=ago(29))), 1),
    "a request that has had its answer": (desired(Load(wanted_at=ago(30))), 0),
    "a request by a clock that is a little ahead": (desired(Load(wanted_at=NOW + timedelta(seconds=5))), 1),
    "a time that is no request's": (desired(Load(wanted_at=NOW + timedelta(days=1))), 0),
    "a request and runs": (desired(Load(running=11, wanted_at=NOW)), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_pods_desired(case: str) -> None:
    made, wanted = CASES[case]
    assert made == wanted


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_pods_are_kept_for_as_long_after_they_were_last_needed() -> None:
    demand = Demand()
    demand.note(3, at(0))
    demand.note(1, at(50))
    assert demand.highest(10, at(55)) == 3
    assert demand.falls_at(10, at(55)) == at(60)
    assert demand.highest(10, at(60)) == 1
    assert demand.falls_at(10, at(60)) is None


def test_it_falls_step_by_step_to_what_is_needed() -> None:
    demand = Demand()
    for pods, when in ((4, 0), (2, 5), (0, 8)):
        demand.note(pods, at(when))
    assert [demand.highest(10, at(t)) for t in (14.9, 15, 17.9, 18)] == [4, 2, 2, 0]


def test_a_short_rise_keeps_what_it_needed() -> None:
    demand = Demand()
    for pods, when in ((0, 0), (2, 20), (0, 21)):
        demand.note(pods, at(when))
    assert demand.highest(10, at(30)) == 2
    assert demand.highest(10, at(31)) == 0


@pytest.mark.parametrize("text", ["", "soon", "2026-01-31T12:00:00"])
def test_a_mark_that_is_no_time_is_none(text: str) -> None:
    one = agent()
    meta = one.metadata.model_copy(update={"annotations": {ANNOTATION_WANTED_AT: text}})
    assert wanted_at(one.model_copy(update={"metadata": meta})) is None
