"""Whether a new run may enter its thread. Pure; called inside the transaction that creates the run (runyard_store)."""

from collections.abc import Sequence
from dataclasses import dataclass

from runyard_api.errors import ThreadBusy
from runyard_api.states import Strategy

BUSY_DETAIL = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."


@dataclass(frozen=True)
class Admission:
    """The outcome for an admitted run: the sequence it takes on its thread."""

    sequence: int


def admit(strategy: Strategy, *, last_sequence: int, unfinished: Sequence[int]) -> Admission:
    """Admits a run to a thread whose newest sequence is `last_sequence` and whose unfinished sequences are given.

    Interrupt and rollback cancel nothing here: those cancels are derived from the newer run's own strategy by
    `runyard_api.dispatch`, so a gateway that dies in between loses none. Raises ThreadBusy for reject.
    """
    if strategy is Strategy.REJECT and unfinished:
        raise ThreadBusy(BUSY_DETAIL)
    return Admission(sequence=last_sequence + 1)
