"""State, history, update and schemas: what the runtime does with a graph besides executing runs.

Used by the routes (`app.py`). Graph code runs on the graph loop; the lease and the thread's row are the server loop's.
"""

import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from langgraph.errors import InvalidUpdateError

from runyard_api.errors import BadRequest, NotFound, RunyardError
from runyard_api.internal import GraphSchemas, HistoryQuery, StateQuery, StateUpdate
from runyard_runtime.asked import UnknownCheckpoint, check_checkpoint
from runyard_runtime.attempt import Engine
from runyard_runtime.factories import Access
from runyard_runtime.graphs import AnyGraph, Use
from runyard_runtime.run_config import checkpoint_keys, thread_config
from runyard_runtime.schemas import graph_schemas
from runyard_runtime.serialize import dumps
from runyard_runtime.state import Shown, checkpoint_of, shown, thread_state
from runyard_store.leases import claim_thread, release
from runyard_store.threads import ThreadUpdate, record_state

UPDATE_PATIENCE_S = 5.0
"""How long an update waits for others of its thread. The gateway waits longer for the answer."""


class Threads:
    """See the module."""

    def __init__(self, engine: Engine, holder: str) -> None:
        """`holder` names this process in the lease."""
        self._engine, self._holder = engine, holder

    async def state(self, thread_id: str, query: StateQuery) -> bytes:
        """A ThreadState as JSON. Raises NotFound for an unknown graph, checkpoint or subgraph namespace."""
        return await self._engine.graph_loop.run(self._state(thread_id, query))

    async def history(self, thread_id: str, query: HistoryQuery) -> bytes:
        """A JSON array of ThreadStates, newest first. Raises NotFound for an unknown graph or namespace, BadRequest for
        a key of metadata that the database can't look for."""
        return await self._engine.graph_loop.run(self._history(thread_id, query))

    async def update(self, thread_id: str, change: StateUpdate) -> bytes:
        """Writes values as if a node had returned them; JSON {checkpoint, configurable, checkpoint_id}.

        Raises Held while a run has the thread, or other updates for long, NotFound for an unknown checkpoint or a
        thread of another user, BadRequest for what the graph refuses.
        """
        engine = self._engine
        if isinstance(change.values, list):
            raise BadRequest("values must be an object or null, not a list")
        now_ms = time.time_ns() // 1_000_000
        epoch = await claim_thread(
            engine.db, thread_id, self._holder, now_ms, user_id=change.user_id, patience_s=UPDATE_PATIENCE_S
        )
        try:
            config, view = await engine.graph_loop.run(self._write(thread_id, change, epoch))
            now = datetime.now(UTC)
            row = ThreadUpdate(view.values, view.interrupts, view.head, view.status, now)
            await record_state(engine.db, thread_id, epoch, row)
        finally:
            await release(engine.db, thread_id, epoch)
        checkpoint = checkpoint_of(config) or {}
        answer = {
            "checkpoint": checkpoint,
            "configurable": checkpoint,
            "checkpoint_id": checkpoint.get("checkpoint_id"),
        }
        return dumps(answer)

    async def schemas(self, graph_id: str) -> GraphSchemas:
        """The graph's JSON schemas; None where one can't be made. Raises NotFound."""
        return await self._engine.graph_loop.run(self._schemas(graph_id))

    def _open(self, graph_id: str, thread_id: str, access: Access) -> AbstractAsyncContextManager[AnyGraph]:
        use = Use(access, thread_config(thread_id), self._engine.checkpointers.store)
        return self._engine.graphs.open(graph_id, use)

    def _reading(self, graph: AnyGraph) -> AnyGraph:
        return graph.copy(
            {"checkpointer": self._engine.checkpointers.reader(), "store": self._engine.checkpointers.store}
        )

    async def _state(self, thread_id: str, query: StateQuery) -> bytes:
        async with self._open(query.graph_id, thread_id, "threads.read") as graph:
            config = thread_config(thread_id, query.checkpoint)
            try:
                snapshot = await self._reading(graph).aget_state(config, subgraphs=query.subgraphs)
            except ValueError as error:
                raise NotFound(f"Thread state not found: {error}") from error
            wanted = checkpoint_keys(query.checkpoint).get("checkpoint_id")
            if wanted and snapshot.created_at is None:
                raise NotFound(f"Checkpoint {wanted} of thread {thread_id} not found.")
            return dumps(thread_state(snapshot))

    async def _history(self, thread_id: str, query: HistoryQuery) -> bytes:
        before = thread_config(thread_id, query.before) if query.before else None
        async with self._open(query.graph_id, thread_id, "threads.read") as graph:
            try:
                snapshots = self._reading(graph).aget_state_history(
                    thread_config(thread_id, query.checkpoint), filter=query.metadata, before=before, limit=query.limit
                )
                return dumps([thread_state(snapshot) async for snapshot in snapshots])
            except ValueError as error:
                if "filter key" in str(error):  # sqlite's saver alone is particular about them
                    raise BadRequest(f"metadata: {_sentence(error)}") from error
                raise NotFound(f"Thread history not found: {error}") from error

    async def _write(self, thread_id: str, change: StateUpdate, epoch: int) -> tuple[Any, Shown]:
        saver = self._engine.checkpointers.saver(thread_id, epoch, lambda: None)
        async with self._open(change.graph_id, thread_id, "threads.update") as graph:
            bound = graph.copy({"checkpointer": saver, "store": self._engine.checkpointers.store})
            at = thread_config(thread_id, change.checkpoint)
            try:
                await check_checkpoint(saver, at)
                config = await bound.aupdate_state(at, change.values, change.as_node)
            except RunyardError:
                raise
            except UnknownCheckpoint as error:
                raise NotFound(str(error)) from error
            except (InvalidUpdateError, ValueError, TypeError, KeyError) as error:
                raise BadRequest(f"the graph refuses the update: {_sentence(error)}") from error
            head = await bound.aget_state(thread_config(thread_id))
        return config, shown(head)

    async def _schemas(self, graph_id: str) -> GraphSchemas:
        async with self._open(graph_id, "", "assistants.read") as graph:
            return graph_schemas(graph_id, graph)


def _sentence(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
