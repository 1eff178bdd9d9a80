"""What of a Run may change after its creation: the cancel, in one direction, and nothing else."""

from typing import Any

import pytest
from tests.support.manifests import hand_written_run

from runyard_api.crd import Manifest
from runyard_api.run import cancel_patch
from runyard_api.states import CancelAction
from runyard_kube.client import KubeClient
from runyard_kube.errors import Invalid
from runyard_kube.resources import RUNS

pytestmark = pytest.mark.apiserver

OLD, NEW = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e", "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6f"
SPEC: dict[str, Any] = {
    "graphId": "agent",
    "assistantId": OLD,
    "threadId": OLD,
    "userId": "ann",
    "payload": {"input": "old", "config": {"tags": ["old"]}, "command": {"resume": "old"}},
    "ttlSecondsAfterFinished": 5,
}
CHANGES: dict[str, Any] = {
    "agentName": "other",
    "graphId": "other",
    "assistantId": NEW,
    "threadId": NEW,
    "userId": "bob",
    "streamMode": ["Updates"],
    "multitaskStrategy": "Reject",
    "onDisconnect": "Cancel",
    "durability": "Exit",
    "ttlSecondsAfterFinished": 6,
}


async def _refused(kube: KubeClient, namespace: str, body: Manifest, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.patch(RUNS, namespace, "by-hand", body)
    assert said in refused.value.message


@pytest.mark.parametrize("field", CHANGES)
async def test_a_field_cannot_be_changed(kube: KubeClient, namespace: str, field: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run(**SPEC))
    await _refused(kube, namespace, {"spec": {field: CHANGES[field]}}, f"spec.{field}: Invalid value: can't be changed")


@pytest.mark.parametrize("field", [*SPEC, "sequence"])
async def test_a_field_cannot_be_added_later(kube: KubeClient, namespace: str, field: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    value = {**SPEC, "sequence": 1}[field]
    await _refused(kube, namespace, {"spec": {field: value}}, f"spec.{field}: Invalid value: can't be changed")


@pytest.mark.parametrize("field", SPEC)
async def test_a_field_cannot_be_taken_away(kube: KubeClient, namespace: str, field: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run(**SPEC))
    await _refused(kube, namespace, {"spec": {field: None}}, f"spec.{field}: Invalid value: can't be changed")


@pytest.mark.parametrize(
    "change",
    [{"input": "new"}, {"config": {"tags": ["new"]}}, {"command": {"resume": "new"}}, {"context": {"a": 1}}],
    ids=lambda change: next(iter(change)),
)
async def test_user_json_in_the_payload_cannot_be_changed(kube: KubeClient, namespace: str, change: Manifest) -> None:
    await kube.create(RUNS, namespace, hand_written_run(**SPEC))
    await _refused(kube, namespace, {"spec": {"payload": change}}, "spec.payload: Invalid value: can't be changed")


async def test_labels_and_annotations_may_change(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run(**SPEC))
    changed = await kube.patch(RUNS, namespace, "by-hand", {"metadata": {"labels": {"team": "a"}}})
    assert (changed["metadata"]["labels"], changed["metadata"]["generation"]) == ({"team": "a"}, 1)


async def test_a_cancel_is_added_and_escalated_to_rollback(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    added = await kube.patch(RUNS, namespace, "by-hand", cancel_patch(CancelAction.INTERRUPT, "enough"))
    assert added["spec"]["cancel"] == {"action": "Interrupt", "reason": "enough"}
    escalated = await kube.patch(RUNS, namespace, "by-hand", cancel_patch(CancelAction.ROLLBACK))
    assert escalated["spec"]["cancel"]["action"] == "Rollback"


async def test_a_cancel_is_never_weakened_nor_taken_back(kube: KubeClient, namespace: str) -> None:
    await kube.create(RUNS, namespace, hand_written_run())
    await kube.patch(RUNS, namespace, "by-hand", cancel_patch(CancelAction.ROLLBACK))
    await _refused(kube, namespace, cancel_patch(CancelAction.INTERRUPT), "spec.cancel.action: Invalid value: may be")
    await _refused(kube, namespace, {"spec": {"cancel": None}}, "spec.cancel: Invalid value: can't be taken back")
