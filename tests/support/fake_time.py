"""An event loop whose time jumps to the next timer once nothing else is left to do: hours pass in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Never waits for time; says how long it would have waited."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout is None:
            return ready or super().select(timeout)
        self.skipped += max(0.0, timeout)
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped


def run_in_fake_time(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on such a loop, whose time begins at 0."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(work)
