"""Who may enter a thread."""

import pytest

from runyard_api.admission import admit
from runyard_api.errors import ThreadBusy
from runyard_api.states import Strategy


@pytest.mark.parametrize("strategy", Strategy)
def test_an_idle_thread_admits_every_strategy_with_the_next_sequence(strategy: Strategy) -> None:
    assert admit(strategy, last_sequence=4, unfinished=[]).sequence == 5


@pytest.mark.parametrize("strategy", [s for s in Strategy if s is not Strategy.REJECT])
def test_a_busy_thread_admits_all_but_reject(strategy: Strategy) -> None:
    assert admit(strategy, last_sequence=4, unfinished=[3, 4]).sequence == 5


def test_reject_is_refused_on_a_busy_thread_with_the_sentence_clients_know() -> None:
    with pytest.raises(ThreadBusy, match="already running a task") as caught:
        admit(Strategy.REJECT, last_sequence=1, unfinished=[1])
    assert caught.value.status == 409
