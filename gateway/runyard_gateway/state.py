"""Thread states: from the thread's row when that answers the question, otherwise from a pod of its agent.

Used by routes/thread_state.py; calls the store, Runs.endpoint and the pod.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from runyard_api.errors import BadRequest, Invalid, NotFound, RunyardError
from runyard_api.internal import HistoryQuery, StateQuery, StateUpdate
from runyard_api.states import ThreadState
from runyard_api.wire import CheckpointRef, HistoryRead, StateWrite
from runyard_gateway.assistants import resolve
from runyard_gateway.ports import AgentEndpoint, Runs
from runyard_gateway.views import fresh_state, state_view
from runyard_store.database import Database
from runyard_store.runs import list_runs
from runyard_store.thread_changes import record_known_head, resting_epoch
from runyard_store.threads import ThreadRow, get_thread

LIVE_SECONDS = 5.0
"""How long the pod of a busy thread may take to tell its state before the row's, of the run before, is good enough."""


@dataclass(frozen=True)
class GraphOf:
    """Which graph's state a thread holds, and whose it is."""

    agent_name: str
    graph_id: str


class ThreadStates:
    """Reads and updates states of threads that the caller has looked up for their user."""

    def __init__(self, db: Database, runs: Runs) -> None:
        self._db, self._runs = db, runs

    async def known(self, thread: ThreadRow) -> ThreadRow:
        """The thread with its state as it is: where the row doesn't know it, a pod is asked, and the row learns it.
        Raises Unavailable."""
        if not thread.head_unknown:
            return thread
        epoch = await resting_epoch(self._db, thread.thread_id)
        state = await self._ask(thread, None, subgraphs=False)
        head = state if state and state["checkpoint"] else None
        values, interrupts = (head["values"], interrupts_of(head)) if head else (None, {})
        if epoch is not None:
            await record_known_head(self._db, thread.thread_id, epoch, values=values, interrupts=interrupts, head=head)
            thread = await get_thread(self._db, thread.thread_id)
        return replace(thread, values=values, interrupts=interrupts, head=head) if thread.head_unknown else thread

    async def current(self, thread: ThreadRow, *, subgraphs: bool) -> dict[str, Any]:
        """The newest state. While a run is at work its pod is asked; raises Unavailable only for `subgraphs` and where
        the row doesn't know the head."""
        if thread.head_unknown and not subgraphs:
            return self._resting(await self.known(thread))
        rests = await self._rests(thread)
        if rests and (not subgraphs or thread.head is None):
            return self._resting(thread)
        if not subgraphs:
            return await self._live(thread) or self._resting(thread)
        return await self._ask(thread, None, subgraphs=True) or self._resting(thread)

    async def at(self, thread: ThreadRow, ref: CheckpointRef, *, subgraphs: bool) -> dict[str, Any]:
        """The state at a checkpoint. Raises NotFound when there is none of this id, Unavailable."""
        checkpoint = checkpoint_of(ref, None)
        if checkpoint is None:
            return await self.current(thread, subgraphs=subgraphs)
        state = await self._ask(thread, checkpoint, subgraphs=subgraphs)
        if state is None or (ref.checkpoint_id and not state["checkpoint"]):
            raise NotFound(f"Checkpoint {ref.checkpoint_id} of thread {thread.thread_id} not found.")
        return state

    async def history(self, thread: ThreadRow, body: HistoryRead) -> list[dict[str, Any]]:
        """States, newest first. The newest alone comes from the row of a thread at rest. Raises Unavailable."""
        checkpoint = checkpoint_of(body.checkpoint, None)
        before = before_of(body.before)
        limit = body.limit or 1
        at_rest = await self._rests(thread)
        if at_rest and thread.head is None:
            return []
        if at_rest and thread.head and limit == 1 and not (checkpoint or before or body.metadata):
            return [state_view(thread.head)]
        graph = await self._graph_of(thread)
        if graph is None:
            return []
        endpoint = await self._runs.endpoint(graph.agent_name)
        query = HistoryQuery(
            graph_id=graph.graph_id, limit=limit, before=before, metadata=body.metadata or None, checkpoint=checkpoint
        )
        return [state_view(state) for state in await endpoint.history(thread.thread_id, query)]

    async def update(self, thread: ThreadRow, body: StateWrite) -> dict[str, Any]:
        """Writes values as if a node had. Raises BadRequest for values or a node that the graph refuses, Held while a
        run is at work, Unavailable."""
        if body.values is not None and not isinstance(body.values, dict):
            raise BadRequest("values: must be an object or null")
        graph = await self._graph_of(thread)
        if graph is None:
            raise BadRequest(
                f"Thread {thread.thread_id} has no graph yet: run one on it, or set graph_id in its metadata."
            )
        update = StateUpdate(
            graph_id=graph.graph_id,
            user_id=thread.user_id,
            values=body.values,
            as_node=body.as_node,
            checkpoint=checkpoint_of(body.checkpoint, body.checkpoint_id),
        )
        endpoint = await self._runs.endpoint(graph.agent_name)
        return await endpoint.update(thread.thread_id, update)

    async def _rests(self, thread: ThreadRow) -> bool:
        """Whether nobody is at work on the thread, so that its row shows the newest state: runs may wait."""
        return thread.status is not ThreadState.BUSY or await resting_epoch(self._db, thread.thread_id) is not None

    async def _live(self, thread: ThreadRow) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(LIVE_SECONDS):
                return await self._ask(thread, None, subgraphs=False)
        except (RunyardError, TimeoutError):
            return None

    async def _ask(
        self, thread: ThreadRow, checkpoint: dict[str, Any] | None, *, subgraphs: bool
    ) -> dict[str, Any] | None:
        graph = await self._graph_of(thread)
        if graph is None:
            return None
        endpoint: AgentEndpoint = await self._runs.endpoint(graph.agent_name)
        query = StateQuery(graph_id=graph.graph_id, checkpoint=checkpoint, subgraphs=subgraphs)
        return state_view(await endpoint.state(thread.thread_id, query))

    async def _graph_of(self, thread: ThreadRow) -> GraphOf | None:
        """The newest run's graph, or the one that the thread names. None: it has neither."""
        if newest := await list_runs(self._db, thread.thread_id, limit=1):
            return GraphOf(newest[0].agent_name, newest[0].graph_id)
        named = thread.graph_id or thread.metadata.get("graph_id")
        if not isinstance(named, str):
            return None
        try:
            assistant = resolve(self._runs.agents(), named)
        except (Invalid, NotFound) as error:
            raise BadRequest(f"metadata.graph_id of thread {thread.thread_id}: {error.detail}") from error
        return GraphOf(assistant.agent_name, assistant.graph_id)

    @staticmethod
    def _resting(thread: ThreadRow) -> dict[str, Any]:
        return state_view(thread.head) if thread.head else dict(fresh_state())


def interrupts_of(state: dict[str, Any]) -> dict[str, Any]:
    """Task id → what it asks, of a state."""
    return {task["id"]: task["interrupts"] for task in state["tasks"] if task["interrupts"]}


def checkpoint_of(ref: CheckpointRef | None, checkpoint_id: str | None) -> dict[str, Any] | None:
    """What a pod is asked for; None when nothing in particular is. Raises BadRequest when two ids contradict."""
    given = ref.model_dump(exclude_none=True, exclude={"thread_id"}) if ref else {}
    if checkpoint_id and given.get("checkpoint_id", checkpoint_id) != checkpoint_id:
        raise BadRequest("Cannot specify a checkpoint and another checkpoint_id")
    whole = {**given, **({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}
    return whole if any(whole.values()) else None


def before_of(before: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """`before` as a config, from an id, a checkpoint or a config. Raises Invalid when it names no checkpoint."""
    if not before:
        return None
    if isinstance(before, str):
        return {"configurable": {"checkpoint_id": before}}
    inner = before.get("configurable", before)
    if not isinstance(inner, dict) or not isinstance(inner.get("checkpoint_id"), str):
        raise Invalid("before: must be a checkpoint id, a checkpoint, or a config with configurable.checkpoint_id")
    return {"configurable": {key: inner[key] for key in ("checkpoint_ns", "checkpoint_id") if key in inner}}
