"""Agents over time: the real reconciles around stand-ins, on fake time, also with an operator that crashes anywhere."""

import pytest
from tests.unit.operator.stage import Stage, on_stage

from runyard_api.conditions import AgentReason
from runyard_api.names import AGENT_FINALIZER, ANNOTATION_DRAINING, ANNOTATION_WANTED_AT
from runyard_api.states import RunState
from runyard_operator.agents.manifests import hash_of

ZERO = {"replicas": {"min": 0, "max": 3, "idleSeconds": 20}}


def ready_reason(stage: Stage) -> tuple[str, str]:
    agent = stage.agent()
    assert agent is not None
    assert agent.ready is not None
    return agent.ready.status.value, agent.ready.reason


def succeeded(stage: Stage, *names: str) -> bool:
    return all(run is not None and run.state is RunState.SUCCESS for run in map(stage.run, names))


async def from_zero_and_back(stage: Stage) -> None:
    stage.add_agent(**ZERO)
    await stage.play(10)
    assert len(stage.lives) == 1, "one pod tells what the template serves"
    await stage.play(30)
    assert (stage.pod_names, ready_reason(stage)) == ([], ("True", AgentReason.SCALED_TO_ZERO))
    stage.add_run("r1")
    await stage.play(10)
    assert succeeded(stage, "r1")
    assert len(stage.pod_names) == 1
    await stage.play(30)
    assert stage.pod_names == []


def test_an_agent_goes_to_zero_and_comes_back_for_a_run() -> None:
    stage = on_stage(from_zero_and_back)
    agent = stage.agent()
    assert agent is not None
    assert (agent.status.graphs, agent.status.replicas, agent.status.busy) == (("echo",), 0, 0)
    told = stage.rows.graphs[("hello", hash_of(agent.spec))]
    assert told["echo"]["input_schema"] == {"type": "object"}
    assert len(stage.lives) == 2


def test_short_runs_keep_a_pod_though_none_is_at_work_when_somebody_looks() -> None:
    async def scene(stage: Stage) -> None:
        stage.add_agent(**ZERO)
        await stage.play(5)
        for number in range(20):
            stage.add_run(f"r{number}", thread=number)
            await stage.play(8)
        assert len(stage.lives) == 1

    assert succeeded(on_stage(scene, seconds=0.01), *(f"r{number}" for number in range(20)))


def test_a_request_for_graph_code_wakes_an_agent_at_zero() -> None:
    async def scene(stage: Stage) -> None:
        stage.add_agent(**ZERO)
        await stage.play(40)
        assert stage.pod_names == []
        stage.change_agent(annotations={ANNOTATION_WANTED_AT: stage.time()})
        await stage.play(5)
        assert len(stage.pod_names) == 1
        await stage.play(35)
        assert len(stage.pod_names) == 1, "kept for idleSeconds after the request"
        await stage.play(20)
        assert stage.pod_names == []

    on_stage(scene)


def test_as_many_pods_as_there_is_to_do() -> None:
    async def scene(stage: Stage) -> None:
        stage.add_agent(slots=2, **ZERO)
        await stage.play(5)
        for number in range(5):
            stage.add_run(f"r{number}", thread=number)
        await stage.play(10)
        assert len(stage.pod_names) == 3
        await stage.play(200)
        assert stage.pod_names == []

    stage = on_stage(scene, seconds=60.0, slots=2)
    assert succeeded(stage, *(f"r{number}" for number in range(5)))
    assert len(stage.executed) == 5


def test_runs_of_an_agent_that_was_at_zero_have_the_whole_deadline() -> None:
    async def scene(stage: Stage) -> None:
        stage.add_agent(pendingDeadlineSeconds=5, **ZERO)
        await stage.play(60)
        stage.add_run("r1")
        await stage.play(10)

    assert succeeded(on_stage(scene), "r1")


async def rolled(stage: Stage) -> None:
    stage.add_agent(slots=2, drainSeconds=10, replicas={"min": 2, "max": 2})
    await stage.play(5)
    for number in range(4):
        stage.add_run(f"r{number}", thread=number)
    await stage.play(2)
    stage.change_agent(image="docker.io/example/hello:2")
    await stage.play(120)


def test_a_new_template_takes_over_pod_by_pod_and_no_run_is_cut() -> None:
    stage = on_stage(rolled, seconds=30.0, slots=2)
    names = [f"r{number}" for number in range(4)]
    assert succeeded(stage, *names)
    agent = stage.agent()
    assert agent is not None
    assert stage.pod_names == [f"hello-{hash_of(agent.spec)}-{i}" for i in range(2)]
    assert all(run is not None and not run.status.failures for run in map(stage.run, names))
    assert len(stage.executed) == 8, "each run was handed over once, at a step's end"


@pytest.mark.parametrize("crash_at", range(1, 90, 4))
def test_a_new_template_takes_over_though_the_operator_crashes(crash_at: int) -> None:
    stage = on_stage(rolled, crash_at=crash_at, seconds=30.0, slots=2)
    assert succeeded(stage, *(f"r{number}" for number in range(4)))
    assert stage.crashes == 1
    agent = stage.agent()
    assert agent is not None
    assert stage.pod_names == [f"hello-{hash_of(agent.spec)}-{i}" for i in range(2)]


async def one_run_per_pod(stage: Stage) -> None:
    stage.add_agent(maxRunsPerPod=1, replicas={"min": 1, "max": 2})
    await stage.play(5)
    for number in range(5):
        stage.add_run(f"r{number}", thread=number)
    await stage.play(60)


@pytest.mark.parametrize("crash_at", [None, *range(20, 120, 7)])
def test_with_one_run_per_pod_no_pod_takes_a_second(crash_at: int | None) -> None:
    stage = on_stage(one_run_per_pod, crash_at=crash_at, seconds=3.0)
    assert succeeded(stage, *(f"r{number}" for number in range(5)))
    assert [len(pod.executed) for pod in stage.lives if pod.executed] == [1] * 5
    assert len(stage.pod_names) == 1, "a fresh one is kept"


def test_a_pod_that_a_person_marks_finishes_and_is_replaced() -> None:
    async def scene(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(5)
        stage.add_run("r1")
        await stage.play(2)
        stage.annotate_pod(stage.pod_names[0], {ANNOTATION_DRAINING: "true"})
        await stage.play(60)

    stage = on_stage(scene, seconds=20.0)
    assert succeeded(stage, "r1")
    assert stage.executed == [("r1", 1)]
    assert len(stage.lives) == 2
    assert stage.pod_names == [stage.lives[1].name]


async def deleted_at_work(stage: Stage) -> None:
    stage.add_agent(slots=1, drainSeconds=30)
    await stage.play(5)
    stage.add_run("r1", thread=1)
    await stage.play(2)
    stage.add_run("r2", thread=2)
    await stage.play(2)
    stage.delete_agent()
    await stage.play(60)


@pytest.mark.parametrize("crash_at", [None, *range(10, 60, 3)])
def test_a_deleted_agent_lets_its_runs_end_and_leaves_nothing(crash_at: int | None) -> None:
    stage = on_stage(deleted_at_work, crash_at=crash_at, seconds=20.0, slots=1)
    assert succeeded(stage, "r1")
    waiting = stage.run("r2")
    assert waiting is not None
    assert waiting.status.error is not None
    assert (waiting.state, waiting.status.error.error) == (RunState.ERROR, "AgentDeleted")
    assert (stage.agent(), stage.pod_names, stage.rows.graphs) == (None, [], {})


def test_an_agent_has_our_finalizer_before_it_has_pods() -> None:
    async def scene(stage: Stage) -> None:
        stage.add_agent()
        await stage.play(2)

    stage = on_stage(scene)
    agent = stage.agent()
    assert agent is not None
    assert agent.metadata.finalizers == (AGENT_FINALIZER,)
    assert [verb for verb, _, _ in stage.cluster.writes][:2] == ["patch", "create"]
