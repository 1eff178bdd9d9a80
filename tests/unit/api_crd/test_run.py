"""How a Run is built, and what its readers see in it."""

from typing import Any

import orjson
import pytest
from tests.support.manifests import REMOVED, edited, gateway_run, hand_written_run

from runyard_api.crd import Manifest
from runyard_api.errors import Invalid
from runyard_api.run import PAYLOAD_MAX_BYTES, Run, RunSpec, RunStatus, cancel_patch, payload_of
from runyard_api.states import CancelAction, RunState, Strategy

THREAD = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e"


def _as_read(manifest: Manifest, **metadata: object) -> Run:
    read = edited(manifest, "metadata", {**manifest["metadata"], "uid": "uid-1", "managedFields": [], **metadata})
    return Run.from_manifest(read)


def test_a_gateway_run_is_named_by_its_run_id_and_says_its_place() -> None:
    run = _as_read(gateway_run("ns", thread_id=THREAD, sequence=3))
    assert (run.run_id, run.thread_id, run.sequence, run.hand_written) == (run.metadata.name, THREAD, 3, False)


def test_a_hand_written_run_takes_its_ids_from_its_uid() -> None:
    run = _as_read(hand_written_run())
    assert (run.run_id, run.thread_id, run.sequence, run.hand_written) == ("uid-1", "uid-1", None, True)
    assert (run.user_id, run.state, run.strategy, run.cancel_action) == (
        "default", RunState.PENDING, Strategy.ENQUEUE, None,
    )  # fmt: skip


def test_a_hand_written_run_has_a_place_once_it_is_admitted() -> None:
    run = _as_read(
        edited(hand_written_run(threadId=THREAD, userId="ann"), "status", {"state": "pending", "sequence": 4})
    )
    assert (run.sequence, run.thread_id, run.user_id, run.hand_written) == (4, THREAD, "ann", True)


def test_the_object_of_a_gateway_run_is_small_and_has_no_user_data() -> None:
    made = gateway_run("ns")
    assert len(orjson.dumps(made)) < 700
    assert "payload" not in made["spec"]
    assert made["spec"]["streamMode"] == ["Values", "MessagesTuple"]


def test_what_is_built_is_what_the_models_write() -> None:
    made = gateway_run("ns")
    assert RunSpec.model_validate(made["spec"]).to_json() == made["spec"]


@pytest.mark.parametrize(
    ("action", "reason", "cancel"),
    [
        (CancelAction.INTERRUPT, "", {"action": "Interrupt"}),
        (CancelAction.ROLLBACK, "newer run", {"action": "Rollback", "reason": "newer run"}),
        (CancelAction.INTERRUPT, "x" * 300, {"action": "Interrupt", "reason": "x" * 256}),
    ],
    ids=["without a reason", "with a reason", "with a reason too long"],
)
def test_a_cancel_patch(action: CancelAction, reason: str, cancel: Manifest) -> None:
    assert cancel_patch(action, reason) == {"spec": {"cancel": cancel}}
    run = _as_read(edited(hand_written_run(), "spec.cancel", cancel))
    assert run.cancel_action is action


def test_fields_of_a_newer_version_are_dropped_in_reading_and_refused_in_building() -> None:
    newer = edited(edited(hand_written_run(), "spec.priority", 5), "status.usage", {"tokens": 1})
    assert _as_read(newer).spec.agent_name == "hello"
    with pytest.raises(ValueError, match="priority"):
        RunSpec.model_validate(newer["spec"])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.agentName", REMOVED, "Run by-hand: spec.agentName: Field required"),
        ("spec.sequence", "1", "Run by-hand: spec.sequence: "),
        ("status.state", "done", "Run by-hand: status.state: "),
    ],
    ids=["no agent", "a sequence as text", "an unknown state"],
)
def test_an_object_that_cannot_be_read_is_named_with_its_field(path: str, value: object, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        Run.from_manifest(edited(hand_written_run(), path, value))
    assert refused.value.detail.startswith(said)


def test_absent_status_fields_are_not_written() -> None:
    assert RunStatus().to_json() == {"state": "pending", "conditions": []}


def test_the_payload_of_a_hand_written_run_in_the_form_of_the_store() -> None:
    spec: Manifest = {
        "streamMode": ["Updates", "MessagesTuple"],
        "durability": "Exit",
        "payload": {"input": {"a": None}, "config": {"tags": ["x"]}, "context": {"k": 1}, "metadata": {"m": 2}},
    }
    payload = payload_of(_as_read(hand_written_run(**spec)).spec)
    assert payload.input == {"a": None}
    assert (payload.config, payload.context, payload.metadata) == ({"tags": ["x"]}, {"k": 1}, {"m": 2})
    assert (payload.stream_mode, payload.durability) == (["updates", "messages-tuple"], "exit")


def test_a_run_without_a_payload_goes_on_without_input() -> None:
    payload = payload_of(_as_read(hand_written_run()).spec)
    assert (payload.input, payload.command, payload.stream_mode) == (None, None, ["values"])


def test_a_command_keeps_its_shape() -> None:
    command = {"resume": {"approved": True}, "update": [["a", 1]], "goto": [{"node": "n", "input": 1}, "m"]}
    made = payload_of(_as_read(hand_written_run(payload={"command": command})).spec).command
    assert made is not None
    assert (made.resume, made.update) == ({"approved": True}, [("a", 1)])


@pytest.mark.parametrize("goto", [{"nod": "n"}, 5], ids=["a misspelt field", "a number"])
def test_a_command_that_is_none_is_refused_by_name(goto: object) -> None:
    with pytest.raises(Invalid, match=r"spec\.payload\.command must be"):
        payload_of(_as_read(hand_written_run(payload={"command": {"goto": goto}})).spec)


SENSELESS: dict[str, tuple[dict[str, Any], str]] = {
    "a configurable that is none": ({"config": {"configurable": 7}}, "spec.payload.config.configurable: input should"),
    "a recursion limit below one": ({"config": {"recursion_limit": -5}}, "spec.payload.config.recursion_limit: input"),
    "tags that are no list": ({"config": {"tags": "abc"}}, "spec.payload.config.tags: input should be a valid list"),
    "a concurrency that is no number": ({"config": {"max_concurrency": "x"}}, "spec.payload.config.max_concurrency: "),
    "input beside a command": ({"input": {}, "command": {"resume": 1}}, "spec.payload: input and command can't both"),
    "a command that says nothing": ({"command": {}}, "spec.payload.command: must have at least one of update, resume"),
    "configurable beside context": (
        {"config": {"configurable": {"a": 1}}, "context": {"b": 1}},
        "spec.payload: config.configurable and context can't both be given",
    ),
}


@pytest.mark.parametrize(("payload", "words"), SENSELESS.values(), ids=SENSELESS.keys())
def test_a_payload_without_sense_is_refused_by_name(payload: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as refused:
        payload_of(_as_read(hand_written_run(payload=payload)).spec)
    assert refused.value.detail.startswith(words), refused.value.detail


def test_ids_in_configurable_are_the_servers_and_a_checkpoint_is_where_to_fork_from() -> None:
    configurable = {"user": "u", "thread_id": "x", "checkpoint_id": "c", "checkpoint_map": 7, "__pregel_resuming": True}
    payload = payload_of(_as_read(hand_written_run(payload={"config": {"configurable": configurable}})).spec)
    assert (payload.config, payload.checkpoint) == ({"configurable": {"user": "u"}}, {"checkpoint_id": "c"})


def test_a_payload_over_16_kib_is_refused_with_both_sizes() -> None:
    around = len('{"input":""}')
    fits = hand_written_run(payload={"input": "x" * (PAYLOAD_MAX_BYTES - around)})
    assert payload_of(_as_read(fits).spec).input
    too_much = hand_written_run(payload={"input": "x" * (PAYLOAD_MAX_BYTES - around + 1)})
    with pytest.raises(Invalid, match=r"spec\.payload is 16385 bytes of JSON; at most 16384 are allowed"):
        payload_of(_as_read(too_much).spec)
