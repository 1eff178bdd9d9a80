"""One attempt of a run on the graph loop: open the graph, decide how to begin, stream it, look at what it left.

Made and controlled by `attempt.py` from the server loop; everything but `__init__` and `drain`
runs on the graph loop. User code runs inside.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, cast

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore
from langgraph.types import Interrupt, StateSnapshot

from runyard_api.errors import Fenced
from runyard_api.events import METADATA
from runyard_api.payload import RunPayload
from runyard_runtime.asked import check_checkpoint, check_nodes
from runyard_runtime.emit import Emitter
from runyard_runtime.factories import coerced_context
from runyard_runtime.graph_loop import ThreadCount
from runyard_runtime.graphs import AnyGraph, Graphs, Use
from runyard_runtime.resume import stopped_at_breakpoint
from runyard_runtime.run_config import (
    RunIdentity,
    emitted_modes,
    graph_input,
    run_config,
    stream_modes,
    thread_config,
    user_context,
)
from runyard_runtime.serialize import dumps, error_json
from runyard_runtime.state import Shown, shown
from runyard_store.known_head import KnownHead

_log = structlog.get_logger(__name__)
_WORST_SKEW_MS = 5_000
INTERRUPT = "__interrupt__"


@dataclass(frozen=True)
class Assignment:
    """What one attempt executes. `resume`: go on from the thread's head instead of starting. `ahead_ms`: how far the
    newest checkpoint's clock is ahead of ours; ids are made by clock, so one written now would be lost behind it."""

    identity: RunIdentity
    payload: RunPayload
    recursion_limit: int
    resume: bool
    ahead_ms: int


@dataclass(frozen=True)
class Outcome:
    """How an attempt stopped. `shown` is what the thread row shows, None when the state couldn't be read; `result` the
    JSON of the final values; `error` {error, message} for kind error."""

    kind: Literal["success", "error", "cancelled", "drained", "fenced"]
    shown: Shown | None = None
    result: bytes | None = None
    error: dict[str, str] | None = None


class ClockSkew(Exception):
    """Another pod's clock is so far ahead that what this one writes would be hidden behind it."""


class Execution:
    """See the module. `threads` counts the pool threads that work for the run."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        graphs: Graphs,
        saver: Callable[[Callable[[], None]], BaseCheckpointSaver[Any]],
        known: KnownHead,
        store: BaseStore,
        emitter: Emitter,
        ending: Callable[[], bool],
    ) -> None:
        """`saver` makes the attempt's fenced saver, which uses `known`, from what to call when the fence refuses it;
        `ending` tells whether the graph loop stops, which cancels every task."""
        self._assignment, self._graphs, self._store, self._emitter = assignment, graphs, store, emitter
        self._saver, self._known, self._ending = saver, known, ending
        self._emitted = emitted_modes(assignment.payload.stream_mode)
        self._control = RunControl()
        self._task: asyncio.Task[Any] | None = None
        self._stop: Literal["cancelled", "drained", "fenced"] | None = None
        self._values: Any = None
        self._values_json: bytes | None = None
        self._interrupts: dict[str, Interrupt] = {}
        self.threads = ThreadCount()

    def cancel(self, kind: Literal["cancelled", "drained", "fenced"]) -> None:
        """Stops the attempt at once, on the graph loop. Only a fence overrides an earlier stop."""
        if self._stop is not None:
            self._stop = "fenced" if kind == "fenced" else self._stop
            return
        self._stop = kind
        if self._task is not None:
            self._task.cancel()

    def drain(self) -> None:
        """Asks the graph to stop at its next step boundary; from any thread."""
        self._control.request_drain()

    async def run(self) -> Outcome:
        """Executes the attempt. Raises nothing: whatever user code raises is in the outcome."""
        self.threads.adopt()
        self._task = asyncio.current_task()
        if self._stop is not None:
            return Outcome(self._stop)
        try:
            return await self._in_graph()
        except BaseException as error:  # a factory or the graph's own code may raise anything
            return self._stopped_or(error)
        finally:
            self._task = None

    async def _in_graph(self) -> Outcome:
        await self._clock()
        identity, payload = self._assignment.identity, self._assignment.payload
        config = run_config(identity, payload, recursion_limit=self._assignment.recursion_limit)
        use = Use("threads.create_run", config, self._store, payload.context or None)
        async with self._graphs.open(identity.graph_id, use) as graph:
            saver = self._saver(lambda: self.cancel("fenced"))
            bound = graph.copy({"checkpointer": saver, "store": self._store})
            outcome = await self._streamed(bound, saver, config)
            self._task = None  # what comes now is for the books and not to be cancelled
            if outcome.kind == "fenced":
                return outcome
            if outcome.kind == "success":  # sync code of a stopped run may still work on the values
                self._known.end()
            return await self._looked_at(bound, outcome)

    async def _clock(self) -> None:
        ahead = self._assignment.ahead_ms
        if ahead > _WORST_SKEW_MS:
            raise ClockSkew(f"the thread's newest checkpoint is {ahead / 1000:.1f} s ahead of this pod's clock")
        if ahead > 0:
            await asyncio.sleep((ahead + 1) / 1000)

    async def _streamed(self, graph: AnyGraph, saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> Outcome:
        """Streams the graph to its end; the outcome doesn't yet say what the state is."""
        try:
            if await self._begin(graph, saver, config):
                await self._stream(graph, config)
        except GraphDrained:
            return Outcome("drained")
        except BaseException as error:  # user code may raise anything, SystemExit and CancelledError included
            return self._stopped_or(error)
        return Outcome("fenced" if self._stop == "fenced" else "success")

    def _stopped_or(self, error: BaseException) -> Outcome:
        """An error that came of being stopped isn't the run's; a CancelledError that nobody asked for is."""
        if self._stop is not None:
            return Outcome(self._stop)
        if isinstance(error, Fenced):
            return Outcome("fenced")
        if isinstance(error, asyncio.CancelledError) and self._ending():
            return Outcome("drained")
        _log.warning("run failed", exc_info=error)
        return Outcome("error", error=error_json(error))

    async def _begin(self, graph: AnyGraph, saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> bool:
        """Emits the first event, refuses what the graph or the thread doesn't have. False when the attempt resumes at a
        breakpoint, where it has to stop."""
        identity = self._assignment.identity
        first = {"run_id": identity.run_id, "attempt": identity.attempt}
        if not self._assignment.resume:
            if identity.attempt > 1:
                self._emitter.emit(METADATA, (), dumps(first))
            check_nodes(graph, self._assignment.payload)
            await check_checkpoint(saver, config)
            return True
        for key in ("checkpoint_id", "checkpoint_ns", "checkpoint_map"):
            config["configurable"].pop(key, None)
        head = await graph.aget_state(thread_config(identity.thread_id))
        step = (head.metadata or {}).get("step")
        self._emitter.emit(METADATA, (), dumps({**first, "resumed_step": step}))
        if not await stopped_at_breakpoint(graph, head, self._assignment.payload):
            return True
        self._keep_values(head.values)
        return False

    async def _stream(self, graph: AnyGraph, config: RunnableConfig) -> None:
        payload = self._assignment.payload
        context = user_context(payload, has_schema=graph.context_schema is not None)
        options: dict[str, Any] = {
            "context": coerced_context(graph.context_schema, context),
            "stream_mode": stream_modes(payload.stream_mode),
            "interrupt_before": payload.interrupt_before,
            "interrupt_after": payload.interrupt_after,
            "durability": payload.durability,
            "control": self._control,
            "subgraphs": payload.stream_subgraphs,
        }
        stream = graph.astream(None if self._assignment.resume else graph_input(payload), config, **options)
        async with aclosing(cast(AsyncGenerator[Any, None], stream)) as parts:
            async for part in parts:
                if self._stop is not None:
                    raise asyncio.CancelledError("user code has swallowed the first one")
                ns, mode, data = part if payload.stream_subgraphs else ((), *part)
                self._part(tuple(ns), mode, data)
                if self._emitter.behind:
                    await self._emitter.room()

    def _part(self, ns: tuple[str, ...], mode: str, data: Any) -> None:
        if mode == "values" and not ns:
            self._keep_values(data)
        elif mode in self._emitted:
            self._emitter.emit(mode, ns, dumps(data))

    def _keep_values(self, values: Any) -> None:
        values = self._with_interrupts(values) if isinstance(values, dict) else values
        self._values, self._values_json = values, None
        if "values" in self._emitted:
            self._values_json = dumps(values)
            self._emitter.emit("values", (), self._values_json)

    def _with_interrupts(self, values: dict[str, Any]) -> dict[str, Any]:
        """LangGraph tells the interrupts of parallel tasks one by one, each beside the values of that moment; whoever
        answers needs all of them, so values keep the ones told before."""
        self._interrupts |= {interrupt.id: interrupt for interrupt in values.get(INTERRUPT, ())}
        return {**values, INTERRUPT: tuple(self._interrupts.values())} if self._interrupts else values

    async def _looked_at(self, graph: AnyGraph, outcome: Outcome) -> Outcome:
        """Adds what the thread shows now and the result."""
        head = await self._head(graph)
        view = None if head is None else shown(head)
        result = self._values_json
        if result is None and self._values is not None:
            result = dumps(self._values)
        if result is None and view is not None:
            result = view.values
        kind = "fenced" if self._stop == "fenced" else outcome.kind
        return Outcome(kind, view, result, outcome.error)

    async def _head(self, graph: AnyGraph) -> StateSnapshot | None:
        try:
            return await graph.aget_state(thread_config(self._assignment.identity.thread_id))
        except Exception as error:  # the saver, or channels of the graph; the run's end counts more
            _log.warning("state unread", error=type(error).__name__)
            return None
