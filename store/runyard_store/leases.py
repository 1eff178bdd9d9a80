"""The thread lease: one writer per thread. Called by the runtime before it executes or changes anything of a thread.

A claim is a compare-and-set that raises the epoch; every transaction that writes something of the thread checks it.
"""

from dataclasses import dataclass
from typing import Literal

from runyard_store.database import Database
from runyard_store.pre_run import PreRun
from runyard_store.rows import RunRow

UPDATE_CLAIM_MS = 30_000
"""How long a claim that isn't a run's holds others off; its writer is fenced, not trusted, after that."""


@dataclass(frozen=True)
class Claim:
    """The outcome of a claim.

    started: execute now. mine: this holder has this attempt already. terminal: the run ended, never execute it again;
    then `epoch` and `pre_run` mean nothing. `resume` is true when the root namespace holds a checkpoint of this run:
    go on with input None; false on attempt ≥ 2 means restore `pre_run` and start as attempt 1 did. `head_ms` is the
    clock time of the newest checkpoint id (None: no checkpoint): ids written below it would be lost.
    """

    outcome: Literal["started", "mine", "terminal"]
    run: RunRow
    epoch: int
    pre_run: PreRun
    resume: bool
    head_ms: int | None


async def claim_run(db: Database, *, run_id: str, attempt: int, holder: str, now_ms: int) -> Claim:
    """Claims the run's thread for one attempt, in one transaction; repeating it with the same holder is harmless.

    `holder` names a process (pod uid and boot id). Raises NotFound, Stale (the attempt isn't newer than one seen),
    Early (a lower sequence is unfinished), Held (a state update holds the thread), Unavailable.
    """
    raise NotImplementedError


async def claim_thread(db: Database, thread_id: str, holder: str, now_ms: int) -> int:
    """Claims a thread for a writer that is no run (update state) and returns the epoch; `release` gives it back.

    Raises NotFound, Held (an unfinished run or another writer has it), Unavailable.
    """
    raise NotImplementedError


async def release(db: Database, thread_id: str, epoch: int) -> None:
    """Gives a lease of `claim_thread` back; nothing happens if it was taken over. Raises Unavailable."""
    raise NotImplementedError


async def check(db: Database, thread_id: str, epoch: int) -> bool:
    """Whether the lease still has this epoch. Raises Unavailable."""
    raise NotImplementedError
