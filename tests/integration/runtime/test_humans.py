"""Interrupts, resuming, breakpoints, commands and forks: what a person in the loop sees."""

from typing import Any

from tests.integration.runtime.harness import Ended, Pod

from runyard_api.states import RunState, ThreadState


def _question(ended: Ended) -> Any:
    return ended.run.result["__interrupt__"][0]["value"]


async def test_an_interrupt_ends_the_run_as_success_and_the_thread_as_interrupted(pod: Pod) -> None:
    ended = await pod.run("ask", input={"log": []}, stream_mode=["values", "updates"])
    asked = ended.data("values")[-1]["__interrupt__"]
    assert [(i["value"], set(i)) for i in asked] == [("first question", {"value", "id"})]
    assert ended.data("updates") == [{"__interrupt__": asked}]
    assert ended.run.status is RunState.SUCCESS
    assert ended.run.result["__interrupt__"] == asked
    assert ended.thread.status is ThreadState.INTERRUPTED
    assert list(ended.thread.interrupts.values()) == [asked]
    state = await pod.state(ended.run)
    assert (state["next"], state["interrupts"]) == (["ask"], asked)
    assert list(ended.thread.interrupts) == [state["tasks"][0]["id"]]
    assert ended.thread.head == state


async def test_each_answer_takes_the_run_to_the_next_question(pod: Pod) -> None:
    first = await pod.run("ask", input={"log": []})
    thread_id = first.run.thread_id
    second = await pod.run("ask", thread_id=thread_id, command={"resume": "yes"})
    assert _question(second) == "second question"
    done = await pod.run("ask", thread_id=thread_id, command={"resume": "no"})
    assert done.thread.values["log"] == ["yes,no"]
    assert (done.thread.status, done.thread.interrupts) == (ThreadState.IDLE, {})
    assert "__interrupt__" not in done.run.result


async def test_an_answer_can_name_its_question(pod: Pod) -> None:
    first = await pod.run("ask", input={"log": []})
    question_id = first.run.result["__interrupt__"][0]["id"]
    second = await pod.run("ask", thread_id=first.run.thread_id, command={"resume": {question_id: "yes"}})
    assert _question(second) == "second question"


async def test_a_breakpoint_leaves_next_and_no_interrupt_and_null_input_goes_on(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []}, interrupt_before=["b"])
    assert ended.thread.status is ThreadState.INTERRUPTED
    assert ended.thread.interrupts == {}
    state = await pod.state(ended.run)
    assert (state["next"], state["values"]["log"]) == (["b"], ["a"])
    rest = await pod.run("steps", thread_id=ended.run.thread_id, input=None, interrupt_after=["b"])
    assert (await pod.state(rest.run))["next"] == ["c"]
    done = await pod.run("steps", thread_id=ended.run.thread_id, input=None)
    assert done.thread.values["log"] == ["a", "b", "c"]


async def test_a_breakpoint_before_every_node(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []}, interrupt_before="*")
    assert (await pod.state(ended.run))["next"] == ["a"]


async def test_a_command_updates_the_state_and_goes_to_a_node(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": []}, interrupt_before=["b"])
    moved = await pod.run("steps", thread_id=first.run.thread_id, command={"update": {"log": ["u"]}, "goto": "c"})
    assert moved.thread.values["log"][:2] == ["a", "u"]
    assert "c" in moved.thread.values["log"]


async def test_a_command_sends_input_to_a_node(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": []})
    sent = {"goto": [{"node": "c", "input": {"log": ["mine"]}}]}
    ended = await pod.run("steps", thread_id=first.run.thread_id, command=sent)
    assert ended.thread.values["log"] == ["a", "b", "c", "c"]


async def test_a_run_forks_from_an_earlier_checkpoint(pod: Pod) -> None:
    first = await pod.run("steps", input={"log": []}, stream_mode=["checkpoints"])
    early = next(c for c in first.data("checkpoints") if c["next"] == ["b"])
    ended = await pod.run("steps", thread_id=first.run.thread_id, checkpoint=early["config"]["configurable"])
    assert ended.thread.values["log"] == ["a", "b", "c"]
    state = await pod.state(ended.run)
    assert state["checkpoint_id"] > first.thread.head["checkpoint_id"]  # type: ignore[index]


async def test_state_is_written_only_at_the_end_with_durability_exit(pod: Pod) -> None:
    ended = await pod.run("steps", input={"log": []}, durability="exit")
    state = await pod.state(ended.run)
    assert (state["values"]["log"], state["parent_checkpoint"]) == (["a", "b", "c"], None)
