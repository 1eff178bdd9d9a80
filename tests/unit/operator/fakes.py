"""Stand-ins for what is outside the operator, which live on when an operator crashes: API server, rows, pods.

Every effect passes `Chaos`, before and after, so a test can crash the operator at each of them in turn.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tests.unit.operator.builders import NOW

from runyard_api.admission import admit
from runyard_api.crd import Manifest, format_time
from runyard_api.errors import Draining, NoSlot, NotFound, RunyardError, Stale, Unavailable
from runyard_api.internal import GraphSchemas, RunHeld, RunStart, RuntimeInfo, StatusMessage
from runyard_api.states import CancelAction, RunState
from runyard_clients.runtime import StartAnswer
from runyard_kube import errors as kube
from runyard_kube.client import EVERYTHING, Listing, Selection
from runyard_kube.resources import PODS, Resource
from runyard_store.runs import NewRun, ObjectOfRun, RunRow


class Crash(Exception):
    """The operator died here."""


@dataclass
class Chaos:
    """Raises Crash at the point number `at` (from 1; None: never); points are counted over all stand-ins."""

    at: int | None = None
    passed: int = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise Crash(f"point {self.at}")


def now() -> datetime:
    """The fake clock: NOW, and what the loop's time says has passed since."""
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


Listener = Callable[[Resource, Manifest, bool], None]


@dataclass
class FakeCluster:
    """Objects by (plural, name). `listener` is told of every change, as a watch would. `writes`: verb, plural, name."""

    chaos: Chaos
    listener: Listener | None = None
    on_pod: Callable[[Manifest], None] = lambda _: None
    on_pod_deleted: Callable[[str], None] = lambda _: None
    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    writes: list[tuple[str, str, str]] = field(default_factory=list)
    version: int = 0

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self.version}"
        if (resource.plural, name) in self.objects:
            raise kube.AlreadyExists("exists", code=409)
        self.chaos.point()
        made = copy.deepcopy(body)
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}-{self.version}", "generation": 1}
        made["metadata"] |= meta | {"creationTimestamp": format_time(now())}
        self.writes.append(("create", resource.plural, name))
        self.store(resource, made)
        if resource is PODS:
            self.on_pod(made)
        self.chaos.point()
        return copy.deepcopy(made)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        return copy.deepcopy(self._find(resource, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        selection: Selection = EVERYTHING,
        metadata_only: bool = False,
    ) -> Listing:
        items = [copy.deepcopy(o) for (plural, _), o in self.objects.items() if plural == resource.plural]
        return Listing(items, str(self.version))

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest:
        found = self._find(resource, name)
        head = dict(body["metadata"])
        if head.pop("resourceVersion", None) not in (None, found["metadata"]["resourceVersion"]):
            raise kube.Conflict("changed", code=409)
        if head.pop("uid", None) not in (None, found["metadata"]["uid"]):
            raise kube.Conflict("another", code=409)
        self.chaos.point()
        annotations = found["metadata"].get("annotations", {}) | head.pop("annotations", {})
        found["metadata"] |= head | {"annotations": annotations}
        self.writes.append(("patch", resource.plural, name))
        if found["metadata"].get("deletionTimestamp") and not found["metadata"].get("finalizers"):
            self.remove(resource, name)
        else:
            self.store(resource, found)
        self.chaos.point()
        return copy.deepcopy(found)

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Manifest, *, resource_version: str | None = None
    ) -> Manifest:
        found = self._find(resource, name)
        if resource_version not in (None, found["metadata"]["resourceVersion"]):
            raise kube.Conflict("changed", code=409)
        self.chaos.point()
        merged = found.get("status", {}) | status
        found["status"] = {key: value for key, value in merged.items() if value is not None}
        self.writes.append(("patch", resource.plural, name))
        self.store(resource, found)
        self.chaos.point()
        return copy.deepcopy(found)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        found = self._find(resource, name)
        if uid not in (None, found["metadata"]["uid"]):
            raise kube.Conflict("another", code=409)
        self.chaos.point()
        self.writes.append(("delete", resource.plural, name))
        self.ask_away(resource, name)
        self.chaos.point()

    def ask_away(self, resource: Resource, name: str) -> None:
        """Deletes an object; one with a finalizer stays, marked as deleted."""
        found = self.objects[(resource.plural, name)]
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = format_time(now())
            self.store(resource, found)
        else:
            if resource is PODS:
                self.on_pod_deleted(name)
            self.remove(resource, name)

    def store(self, resource: Resource, made: Manifest) -> None:
        """Keeps an object under a new version and tells the watch."""
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self.objects[(resource.plural, made["metadata"]["name"])] = made
        if self.listener is not None:
            self.listener(resource, copy.deepcopy(made), False)

    def remove(self, resource: Resource, name: str) -> None:
        self.version += 1
        gone = self.objects.pop((resource.plural, name))
        gone["metadata"]["resourceVersion"] = str(self.version)
        if self.listener is not None:
            self.listener(resource, copy.deepcopy(gone), True)

    def _find(self, resource: Resource, name: str) -> Manifest:
        self.chaos.point()
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise kube.NotFound("not found", code=404)
        return found


@dataclass
class FakeRows:
    """The rows of runs, as runyard_store keeps them. `while_creating` is called in the middle of `create`."""

    chaos: Chaos
    rows: dict[str, RunRow] = field(default_factory=dict)
    graphs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    while_creating: Callable[[], None] = lambda: None

    async def create(self, new: NewRun, at: datetime) -> RunRow:
        self.chaos.point()
        if new.run_id not in self.rows:
            others = [row for row in self.rows.values() if row.thread_id == new.thread_id]
            unfinished = [row.sequence for row in others if not row.status.finished]
            last = max((row.sequence for row in others), default=0)
            admission = admit(new.multitask_strategy, last_sequence=last, unfinished=unfinished)
            self.add(new.run_id, new.thread_id, admission.sequence, uid=new.object_uid)
            self.while_creating()
        self.chaos.point()
        return self.rows[new.run_id]

    async def get(self, run_id: str) -> RunRow | None:
        return self.rows.get(run_id)

    async def finish_unheld(
        self, run_id: str, state: RunState, error: dict[str, str] | None, at: datetime
    ) -> RunRow | None:
        self.chaos.point()
        row = self.rows.get(run_id)
        if row is not None and not row.status.finished:
            self.rows[run_id] = row = replace(row, status=state, error=error, ended_at=at)
        self.chaos.point()
        return row

    async def delete(self, run_id: str, at: datetime) -> None:
        self.chaos.point()
        self.rows.pop(run_id, None)
        self.chaos.point()

    async def with_object(self, made_before: datetime) -> list[ObjectOfRun]:
        made = [
            row for row in self.rows.values() if row.object_made_at is not None and row.object_made_at < made_before
        ]
        unfinished = [row for row in made if not row.status.finished]
        return [ObjectOfRun(row.run_id, row.thread_id, row.object_uid) for row in unfinished if row.object_uid]

    async def keep_graphs(self, agent_name: str, template_hash: str, graphs: Mapping[str, Any], at: datetime) -> None:
        self.chaos.point()
        self.graphs[(agent_name, template_hash)] = dict(graphs)
        self.chaos.point()

    async def forget_graphs(self, agent_name: str) -> None:
        self.chaos.point()
        for key in [key for key in self.graphs if key[0] == agent_name]:
            del self.graphs[key]

    def add(self, run_id: str, thread_id: str, sequence: int, *, uid: str | None) -> RunRow:
        facts: dict[str, Any] = dict.fromkeys(RunRow.__dataclass_fields__)
        facts |= {"run_id": run_id, "thread_id": thread_id, "sequence": sequence, "status": RunState.PENDING}
        facts |= {"attempt": 0, "object_uid": uid, "object_made_at": now(), "created_at": now()}
        self.rows[run_id] = row = RunRow(**facts)
        return row


@dataclass
class FakePod:
    """A pod that claims runs as the runtime does. A run takes `seconds`; None: until it is stopped."""

    name: str
    rows: FakeRows
    chaos: Chaos
    slots: int = 10
    max_runs: int = 0
    seconds: float | None = 1.0
    dead: bool = False
    answers: bool = True
    """False: a request is carried out, but its answer gets lost."""
    refusal: RunyardError | None = None
    """What every request for a run gets instead of an answer."""
    answer_after: float = 0.0
    """Seconds between taking a run and saying so."""
    held: dict[str, RunHeld] = field(default_factory=dict)
    executed: list[tuple[str, int]] = field(default_factory=list)
    stopped: list[tuple[str, CancelAction]] = field(default_factory=list)
    _streams: list[asyncio.Queue[StatusMessage]] = field(default_factory=list)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer:
        self.chaos.point()
        if self.refusal is not None:
            raise self.refusal
        answer = self._claim(run_id, start)
        if self.answer_after:
            await asyncio.sleep(self.answer_after)
        self.chaos.point()
        if self.dead or not self.answers:
            raise Unavailable("no answer")
        return answer

    def _claim(self, run_id: str, start: RunStart) -> StartAnswer:
        row = self.rows.rows.get(run_id)
        if self.dead:
            raise Unavailable("nobody there")
        if row is None:
            raise NotFound("no such run")
        mine = self.held.get(run_id)
        if row.status.finished or (mine is not None and mine.attempt == start.attempt):
            return StartAnswer(False, mine or self._held(row, row.status))
        if row.attempt >= start.attempt:
            raise Stale("used")
        if sum(not run.state.finished for run in self.held.values()) >= self.slots:
            raise NoSlot("full")
        if self.max_runs and len(self.executed) >= self.max_runs:
            raise Draining("used up")
        self.rows.rows[run_id] = row = replace(row, attempt=start.attempt, status=RunState.RUNNING, started_at=now())
        self.executed.append((run_id, start.attempt))
        self.held[run_id] = self._held(row, RunState.RUNNING)
        self._say(self.held[run_id])
        if self.seconds is not None:
            self._tasks[run_id] = asyncio.create_task(self._end_later(run_id, start.attempt))
        return StartAnswer(True, self.held[run_id])

    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None:
        self.chaos.point()
        if run_id not in self.held:
            raise NotFound("not held")
        self.stopped.append((run_id, action))
        if action is CancelAction.ROLLBACK:
            self.rows.rows.pop(run_id, None)
            self._end(run_id, RunState.INTERRUPTED, rolled_back=True)
        else:
            self.rows.rows[run_id] = replace(self.rows.rows[run_id], status=RunState.INTERRUPTED, ended_at=now())
            self._end(run_id, RunState.INTERRUPTED)
        self.chaos.point()

    async def ack(self, run_id: str) -> None:
        self.chaos.point()
        if self.held.pop(run_id, None) is None:
            raise NotFound("not held")
        self.chaos.point()

    async def status(self) -> AsyncGenerator[StatusMessage, None]:
        if self.dead:
            raise Unavailable("nobody there")
        stream: asyncio.Queue[StatusMessage] = asyncio.Queue()
        self._streams.append(stream)
        yield self._message("snapshot", *self.held.values())
        while True:
            yield await stream.get()

    async def schemas(self, graph_id: str) -> GraphSchemas:
        return GraphSchemas(graph_id=graph_id, input_schema={"type": "object"})

    async def info(self) -> RuntimeInfo:
        return RuntimeInfo(boot_id=f"boot of {self.name}", slots=self.slots, graphs=("echo",), versions={})

    def hand_over(self) -> None:
        """It was asked away: its runs stop at their next step and go on elsewhere."""
        for run_id, run in list(self.held.items()):
            if not run.state.finished:
                self._tasks.pop(run_id, asyncio.Future()).cancel()
                self._say(self.held.pop(run_id).model_copy(update={"given_up": "drained"}))

    def die(self) -> None:
        """Nobody reaches it any more and nothing it does counts."""
        self.dead = True
        for task in self._tasks.values():
            task.cancel()

    async def _end_later(self, run_id: str, attempt: int) -> None:
        await asyncio.sleep(self.seconds or 0)
        row = self.rows.rows.get(run_id)
        if row is not None and row.attempt == attempt and not row.status.finished:
            self.rows.rows[run_id] = replace(row, status=RunState.SUCCESS, ended_at=now())
            self._end(run_id, RunState.SUCCESS)

    def _end(self, run_id: str, state: RunState, *, rolled_back: bool = False) -> None:
        self.held[run_id] = self.held[run_id].model_copy(update={"state": state, "rolled_back": rolled_back})
        self._say(self.held[run_id])

    def _held(self, row: RunRow, state: RunState) -> RunHeld:
        return RunHeld(run_id=row.run_id, thread_id=row.thread_id, attempt=row.attempt, state=state)

    def _say(self, run: RunHeld) -> None:
        for stream in self._streams:
            stream.put_nowait(self._message("run", run))

    def _message(self, kind: Any, *runs: RunHeld) -> StatusMessage:
        busy = sum(not run.state.finished for run in self.held.values())
        left = self.max_runs - len(self.executed) if self.max_runs else None
        boot = f"boot of {self.name}"
        return StatusMessage(kind=kind, boot_id=boot, slots=self.slots, busy=busy, left=left, runs=runs)
