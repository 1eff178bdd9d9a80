"""The pause after each failure."""

import pytest

from runyard_api.retry import pause


@pytest.mark.parametrize(("failures", "want"), [(1, 0.1), (2, 1.0), (3, 5.0), (4, 5.0), (1000, 5.0)])
def test_pauses_grow_to_the_last_step_and_stay_there(failures: int, want: float) -> None:
    assert pause((0.1, 1.0, 5.0), failures) == want
