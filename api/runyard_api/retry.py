"""How long to wait before trying again: a ladder of pauses, whose last step repeats. Pure; called by all who retry."""

from collections.abc import Sequence


def pause(ladder: Sequence[float], failures: int) -> float:
    """Seconds to wait after that many failures in a row, at least one."""
    return ladder[min(failures, len(ladder)) - 1]
