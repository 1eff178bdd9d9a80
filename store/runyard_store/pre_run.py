"""The pre-run point of a thread: what its checkpoints were before a run's first attempt, and how to go back to it.

Captured inside the claim (leases.py), restored by the runtime for rollback and before an attempt that can't resume.
"""

from dataclasses import dataclass
from typing import Any

from runyard_store.database import Database


@dataclass(frozen=True)
class PreRun:
    """`cut` is the newest checkpoint id of the thread, None without checkpoints. `writes` are the pending writes of the
    checkpoints from `base` up to but not including `upto`: those a run can add to (its start, subgraphs included)."""

    cut: str | None = None
    base: str | None = None
    upto: str | None = None
    writes: tuple[tuple[Any, ...], ...] = ()


async def restore_pre_run(db: Database, thread_id: str, epoch: int, pre_run: PreRun) -> None:
    """Deletes the thread's later checkpoints and puts back exactly its pending writes, under the lease.

    Raises Fenced, Unavailable.
    """
    raise NotImplementedError


async def capture(*args: Any) -> PreRun:
    raise NotImplementedError


async def has_checkpoint_of(*args: Any) -> bool:
    raise NotImplementedError
