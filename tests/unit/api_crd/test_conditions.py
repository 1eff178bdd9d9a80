"""Conditions change their time only when their status does."""

from datetime import UTC, datetime, timedelta

import pytest

from runyard_api.conditions import (
    MESSAGE_LIMIT,
    AgentReason,
    Condition,
    ConditionStatus,
    ConditionType,
    RunReason,
    find_condition,
    set_condition,
)

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def _starting() -> tuple[Condition, ...]:
    return set_condition(
        (), ConditionType.READY, False, reason=AgentReason.PODS_STARTING, message="0 of 1", generation=1, now=NOON
    )


def test_a_first_condition_is_added_with_everything_it_was_given() -> None:
    assert [c.to_json() for c in _starting()] == [
        {
            "type": "Ready",
            "status": "False",
            "reason": "PodsStarting",
            "message": "0 of 1",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
            "observedGeneration": 1,
        }
    ]


def test_the_same_status_keeps_its_time_though_reason_message_and_generation_change() -> None:
    changed = set_condition(
        _starting(),
        ConditionType.READY,
        False,
        reason=AgentReason.IMAGE_PULL_FAILED,
        message="no",
        generation=2,
        now=LATER,
    )
    assert (changed[0].last_transition_time, changed[0].reason, changed[0].observed_generation) == (
        NOON, "ImagePullFailed", 2,
    )  # fmt: skip


def test_another_status_takes_the_time_of_the_change() -> None:
    changed = set_condition(_starting(), ConditionType.READY, True, reason=AgentReason.AVAILABLE, now=LATER)
    assert changed[0].last_transition_time == LATER


def test_setting_the_same_again_changes_nothing() -> None:
    again = set_condition(
        _starting(),
        ConditionType.READY,
        False,
        reason=AgentReason.PODS_STARTING,
        message="0 of 1",
        generation=1,
        now=LATER,
    )
    assert again == _starting()


def test_a_condition_is_replaced_in_its_place_and_others_stay() -> None:
    both = set_condition(_starting(), ConditionType.PROGRESSING, True, reason=AgentReason.PODS_STARTING, now=NOON)
    changed = set_condition(both, ConditionType.READY, True, reason=AgentReason.AVAILABLE, now=LATER)
    assert [c.type for c in changed] == ["Ready", "Progressing"]
    assert changed[1] == both[1]


@pytest.mark.parametrize(
    ("given", "status"), [(True, "True"), (False, "False"), (None, "Unknown"), (ConditionStatus.UNKNOWN, "Unknown")]
)
def test_a_status_may_be_given_as_a_truth_value_or_none(given: bool | None, status: str) -> None:
    assert set_condition((), ConditionType.SUCCEEDED, given, reason=RunReason.RUNNING, now=NOON)[0].status == status


def test_a_long_message_is_cut_so_that_the_schema_accepts_it() -> None:
    message = "x" * (MESSAGE_LIMIT + 1)
    made = set_condition((), ConditionType.READY, False, reason=AgentReason.IMPORT_FAILED, message=message, now=NOON)
    assert (len(made[0].message), made[0].message[-1]) == (MESSAGE_LIMIT, "…")


def test_fractions_of_a_second_are_dropped_as_the_api_server_would() -> None:
    precise = NOON.replace(microsecond=123456)
    made = set_condition((), ConditionType.READY, True, reason=AgentReason.AVAILABLE, now=precise)
    assert made == tuple(Condition.model_validate(c.to_json()) for c in made)


def test_a_condition_is_found_by_its_type() -> None:
    assert find_condition(_starting(), ConditionType.READY) == _starting()[0]
    assert find_condition(_starting(), ConditionType.SUCCEEDED) is None
