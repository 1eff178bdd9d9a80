"""The runs of this pod: slots, claims, and what is kept until the operator has recorded it.

Used by the routes (`app.py`) and by `runtime.py` for draining. Belongs to the server loop.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

import structlog
from structlog.contextvars import bound_contextvars

from runyard_api.errors import Draining, NoSlot, NotFound, OldLeader, Stale
from runyard_api.internal import RunError, RunHeld, RunStart
from runyard_api.states import CancelAction, RunState
from runyard_runtime.attempt import Attempt, Engine
from runyard_store.leases import Claim, claim_run

_log = structlog.get_logger(__name__)
_MOST_UNACKNOWLEDGED = 10_000
_RECENT_BYTES, _MOST_RECENT = 16 * 1024 * 1024, 200


class Registry:
    """Attempts by run id: those that run, those that ended and aren't acknowledged, and recent ones for readers."""

    def __init__(
        self, engine: Engine, *, slots: int, holder: str, publish: Callable[[RunHeld], None], max_runs: int = 0
    ) -> None:
        """`holder` names this process in the lease; `publish` puts a change on the status stream; `max_runs`: how many
        runs it takes in all, 0 for any number."""
        self.slots, self.draining = slots, False
        self._max_runs, self._taken = max_runs, 0
        self._engine, self._holder, self._publish = engine, holder, publish
        self._attempts: dict[str, Attempt] = {}
        self._starting: dict[str, tuple[int, asyncio.Task[tuple[bool, RunHeld]]]] = {}
        self._recent: OrderedDict[str, Attempt] = OrderedDict()
        self._recent_bytes = 0
        self._term = 0

    @property
    def busy(self) -> int:
        """Slots taken: by runs that execute and by claims under way."""
        return len(self._starting) + sum(1 for attempt in self._attempts.values() if not attempt.over)

    @property
    def left(self) -> int | None:
        """How many runs it may still take; None: any number."""
        return None if not self._max_runs else max(0, self._max_runs - self._taken - len(self._starting))

    def reports(self) -> Iterable[RunHeld]:
        """Every run held, and those that ended and aren't acknowledged."""
        return [attempt.report() for attempt in self._attempts.values()]

    def obey(self, term: int) -> None:
        """Refuses the commands of a leader older than one heard before. Raises OldLeader."""
        if term < self._term:
            raise OldLeader(f"a newer leader (term {self._term}) has spoken to this pod")
        self._term = term

    async def start(self, run_id: str, start: RunStart) -> tuple[bool, RunHeld]:
        """Claims and starts a run; (False, report) when this pod has it already or it has ended.

        Raises Draining, NoSlot, Stale, and what `claim_run` raises.
        """
        held = self._attempts.get(run_id)
        if held is not None and held.number == start.attempt and not held.given_up:
            return False, held.report()
        if held is not None and held.number > start.attempt:
            raise Stale(f"attempt {held.number} of the run is newer")
        number, under_way = self._starting.get(run_id, (0, None))
        if under_way is not None and number == start.attempt:
            return await asyncio.shield(under_way)
        self._room_for(run_id)
        # A task of its own: a caller that hangs up must not leave a claim without its execution.
        task = asyncio.create_task(self._claim_and_start(run_id, start))
        self._starting[run_id] = (start.attempt, task)
        return await asyncio.shield(task)

    def cancel(self, run_id: str, action: CancelAction, reason: str) -> None:
        """Stops a run; `reason` is for the log. Raises NotFound when the pod doesn't execute it."""
        attempt = self._attempts.get(run_id)
        if attempt is None or attempt.over:
            raise NotFound(f"run {run_id} isn't running on this pod")
        with bound_contextvars(run=run_id, thread=attempt.thread_id, attempt=attempt.number):
            _log.info("run asked to stop", action=action, reason=reason)
        attempt.cancel(action)

    def acknowledge(self, run_id: str) -> None:
        """Forgets a run that ended: its end is recorded. Nothing happens for others."""
        attempt = self._attempts.get(run_id)
        if attempt is None or not attempt.over:
            return
        del self._attempts[run_id]
        self._remember(attempt)

    def find(self, run_id: str) -> Attempt | None:
        """The attempt whose events can be read here, running or recent."""
        return self._attempts.get(run_id) or self._recent.get(run_id)

    def running(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.over]

    async def settled(self) -> None:
        """Waits for the claims under way: each becomes a run that is held, or not."""
        if tasks := [task for _, task in self._starting.values()]:
            await asyncio.wait(tasks)

    def _room_for(self, run_id: str) -> None:
        if self.draining:
            raise Draining("this pod finishes its runs and takes no new one")
        if self.left == 0:
            raise Draining(f"this pod has taken {self._max_runs} runs, as many as it may")
        takes_over = run_id in self._attempts and not self._attempts[run_id].over
        if self.busy - takes_over >= self.slots:
            raise NoSlot(f"all {self.slots} slots of this pod are taken")

    async def _claim_and_start(self, run_id: str, start: RunStart) -> tuple[bool, RunHeld]:
        try:
            now_ms = time.time_ns() // 1_000_000
            claim = await claim_run(
                self._engine.db, run_id=run_id, attempt=start.attempt, holder=self._holder, now_ms=now_ms
            )
            if claim.outcome == "terminal":
                return False, ended_report(claim)
            return True, self._launch(claim, start)
        finally:
            self._starting.pop(run_id, None)

    def _launch(self, claim: Claim, start: RunStart) -> RunHeld:
        self._taken += 1
        older = self._attempts.get(claim.run.run_id)
        if older is not None and not older.over:
            older.fence()
        # Tasks and calls on other loops take the context of who makes them: lines of all that works for the attempt
        # name it, those of the graph's libraries too.
        with bound_contextvars(run=claim.run.run_id, thread=claim.run.thread_id, attempt=start.attempt):
            attempt = Attempt(
                claim, start.attempt, self._engine, self._changed, deadline_seconds=start.active_deadline_seconds
            )
            self._attempts[attempt.run_id] = attempt
            attempt.start()
            self._engine.metrics.started(resumed=claim.resume)
            report = attempt.report()
            self._publish(report)
            _log.info("run started", resume=claim.resume)
        return report

    def _changed(self, attempt: Attempt) -> None:
        """An attempt is over: ended, and kept until acknowledged, or given up, and forgotten once told."""
        report = attempt.report()
        _log.info("run over", state=report.state, given_up=report.given_up)
        how = "rolled_back" if report.rolled_back else report.given_up or report.state.value
        self._engine.metrics.ended(how)
        if self._attempts.get(attempt.run_id) is not attempt:
            return  # a newer attempt of it runs here
        if attempt.given_up:
            del self._attempts[attempt.run_id]
        self._publish(report)
        over = [a for a in self._attempts.values() if a.over] if len(self._attempts) > _MOST_UNACKNOWLEDGED else []
        for oldest in over[: len(self._attempts) - _MOST_UNACKNOWLEDGED]:
            self.acknowledge(oldest.run_id)

    def _remember(self, attempt: Attempt) -> None:
        self._recent[attempt.run_id] = attempt
        self._recent_bytes += attempt.feed.size
        while self._recent and (self._recent_bytes > _RECENT_BYTES or len(self._recent) > _MOST_RECENT):
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= oldest.feed.size


def ended_report(claim: Claim) -> RunHeld:
    """What the row says of a run that has ended."""
    run = claim.run
    return RunHeld(
        run_id=run.run_id,
        thread_id=run.thread_id,
        attempt=max(run.attempt, 0),
        state=run.status if run.status.finished else RunState.INTERRUPTED,
        error=RunError(**run.error) if run.error else None,
    )
