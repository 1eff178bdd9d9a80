"""What one attempt's saver knows of its thread without asking the database. Used by both kinds of savers; no I/O.

The lease makes it possible: between the claim and the end nobody else writes checkpoints of the thread. It spares an
attempt its first read when the thread had no checkpoint, and the read of the state that it left: of a short run's time
on the graph thread about a sixth.
"""

import threading

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)


class KnownHead:
    """The newest checkpoint of the root namespace, while it is certain. Nodes with sync subgraphs use other threads."""

    def __init__(self, thread_id: str, *, empty: bool = False) -> None:
        """`empty`: the thread has no checkpoint in any namespace."""
        self._thread_id = thread_id
        self._empty, self._ended, self._given_up = empty, False, False
        self._head: CheckpointTuple | None = None
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def end(self) -> None:
        """No graph code uses the saver any more: what is in memory stays as it was stored."""
        self._ended = True

    def answers(self, config: RunnableConfig) -> bool:
        """Whether `head` is what a read with this config would find."""
        place = config["configurable"]
        if place["thread_id"] != self._thread_id:
            return False
        of_head = not place.get("checkpoint_ns") and not place.get("checkpoint_id")
        return self._empty or (self._ended and of_head and self._head is not None)

    @property
    def head(self) -> CheckpointTuple | None:
        """The checkpoint; None: there is none."""
        return self._head

    def putting(self) -> None:
        """A checkpoint is about to be put: `stored` says when it is there."""
        self._empty, self._head = False, None

    def stored(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        """The checkpoint was put. Graphs put those of the root one after the other."""
        place = config["configurable"]
        if place["thread_id"] != self._thread_id or place.get("checkpoint_ns"):
            return
        keys = {"thread_id": self._thread_id, "checkpoint_ns": ""}
        parent = place.get("checkpoint_id")
        head = CheckpointTuple(
            config={"configurable": {**keys, "checkpoint_id": checkpoint["id"]}},
            checkpoint=checkpoint,
            metadata=get_serializable_checkpoint_metadata(config, metadata),
            parent_config={"configurable": {**keys, "checkpoint_id": parent}} if parent else None,
            pending_writes=[],
        )
        with self._lock:
            if checkpoint["id"] not in self._written and not self._given_up:
                self._head = head

    def adding_writes(self, config: RunnableConfig) -> None:
        """A checkpoint gets pending writes, perhaps before it is there itself: it has to be read."""
        checkpoint_id = config["configurable"]["checkpoint_id"]
        with self._lock:
            self._empty = False
            self._written.add(checkpoint_id)
            if self._head is not None and self._head.checkpoint["id"] == checkpoint_id:
                self._head = None

    def give_up(self) -> None:
        """Something else is written: from here on everything is read."""
        with self._lock:
            self._empty, self._head, self._given_up = False, None, True
