"""Settings from the environment: defaults, and one line for what is wrong."""

from pathlib import Path

import pytest

from runyard_process.environment import BadSetting
from runyard_runtime.settings import settings_from_env

LEAST = {"RUNYARD_DATABASE_URL": "sqlite:////x.db", "RUNYARD_TOKEN_SHA256": "a" * 64}


def test_the_least_and_everything() -> None:
    least = settings_from_env(LEAST)
    assert (least.slots, least.port, least.recursion_limit, least.config) == (10, 8123, 25, Path("langgraph.json"))
    more = settings_from_env({**LEAST, "RUNYARD_SLOTS": "3", "RUNYARD_GRAPHS": '{"g": "./a.py:graph"}'})
    assert (more.slots, more.graphs) == (3, {"g": "./a.py:graph"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RUNYARD_DATABASE_URL", ""),
        ("RUNYARD_TOKEN_SHA256", "short"),
        ("RUNYARD_SLOTS", "0"),
        ("RUNYARD_PORT", "-1"),
        ("RUNYARD_RECURSION_LIMIT", "many"),
        ("RUNYARD_GRAPHS", "{"),
        ("RUNYARD_GRAPHS", '{"g": 1}'),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=name):
        settings_from_env({**LEAST, name: value})
