"""Tokens, names and the error classes that cross internal APIs."""

import pytest

from runyard_api import errors, names
from runyard_api.states import CancelAction
from runyard_api.tokens import bearer, pod_token, token_hash, token_matches


def test_a_pod_token_is_bound_to_key_namespace_pod_and_nonce() -> None:
    base = {"namespace": "n", "pod": "p", "nonce": "x"}
    tokens = {
        pod_token(b"k", **base),
        pod_token(b"other", **base),
        pod_token(b"k", **{**base, "namespace": "m"}),
        pod_token(b"k", **{**base, "pod": "q"}),
        pod_token(b"k", **{**base, "nonce": "y"}),
    }
    assert len(tokens) == 5
    assert pod_token(b"k", **base) in tokens


def test_only_the_right_token_matches_its_hash() -> None:
    assert token_matches("secret", token_hash("secret"))
    assert not token_matches("secret2", token_hash("secret"))


@pytest.mark.parametrize(
    ("header", "want"),
    [("Bearer abc", "abc"), ("bearer abc", "abc"), ("Basic abc", None), ("Bearer ", None), (None, None), ("abc", None)],
)
def test_bearer(header: str | None, want: str | None) -> None:
    assert bearer(header) == want


def test_equal_templates_hash_equal_whatever_their_key_order() -> None:
    assert names.template_hash({"a": 1, "b": [2]}) == names.template_hash({"b": [2], "a": 1})
    assert names.template_hash({"a": 1}) != names.template_hash({"a": 2})


def test_a_graph_has_one_assistant_id_for_ever() -> None:
    assert names.system_assistant_id("agent") == "cfd6f874-f5cd-5cf9-8119-ad42dfe65431"


def test_every_error_class_survives_an_internal_api() -> None:
    for cls in (
        errors.Held,
        errors.Stale,
        errors.Early,
        errors.NoSlot,
        errors.Draining,
        errors.NotFound,
        errors.Unavailable,
    ):
        back = errors.error_for(cls.status, cls.reason, "why")
        assert type(back) is cls
        assert back.detail == "why"


def test_an_unknown_reason_becomes_the_nearest_class() -> None:
    assert type(errors.error_for(404, "Whatever", "d")) is errors.NotFound
    assert isinstance(errors.error_for(502, "Whatever", "d"), errors.Unavailable)
    assert errors.error_for(418, "Whatever", "d").status < 500


def test_a_rollback_is_never_weakened() -> None:
    assert CancelAction.INTERRUPT.escalated(CancelAction.ROLLBACK) is CancelAction.ROLLBACK
    assert CancelAction.ROLLBACK.escalated(CancelAction.INTERRUPT) is CancelAction.ROLLBACK
    assert CancelAction.INTERRUPT.escalated(None) is CancelAction.INTERRUPT
