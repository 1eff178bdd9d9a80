"""Client of the runtime's internal API: how the gateway, the operator and the embedded dispatcher talk to an agent pod.

One `RuntimeClient` stands for one endpoint (`http://<pod ip>:8123`, or a unix socket) and borrows an HTTP session whose
connections the caller shares among endpoints. Calls `runyard_api.internal` for shapes, nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from yarl import URL

from runyard_api.errors import Held, RunyardError, Unavailable, error_for
from runyard_api.events import END, Event, EventId
from runyard_api.internal import (
    TERM_HEADER,
    CancelRequest,
    ErrorBody,
    GraphSchemas,
    HistoryQuery,
    RunHeld,
    RunStart,
    RuntimeInfo,
    StateQuery,
    StateUpdate,
    StatusMessage,
)
from runyard_api.states import CancelAction

SOCKET_BASE_URL = "http://runtime"
"""The base URL to use with a client made by `socket_http`: the host only names the peer in logs."""

_PREFIX = "/internal/v1"
_IDLE_SECONDS = 30.0
_LAST_BYTES_SECONDS = 0.05


def _limits(seconds: float) -> aiohttp.ClientTimeout:
    """At most so many seconds of silence; a stream may last."""
    return aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=seconds)


_CALL = _limits(10.0)
_PING = _limits(2.0)
_START = _limits(20.0)  # the claim may wait 5 s for a clock that is ahead
_GRAPH = _limits(30.0)  # runs graph code: factories, state of large threads
_EVENTS = _limits(20.0)  # the server sends an empty line every 5 s
_STATUS = _limits(6.0)  # the server sends a beat every second
_Model = TypeVar("_Model", bound=BaseModel)
_States: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(list[dict[str, Any]])


@dataclass(frozen=True)
class StartAnswer:
    """What a PUT of a run came to. `started` is False when the pod had it already or the run has ended before."""

    started: bool
    run: RunHeld


@dataclass(frozen=True)
class _Answer:
    status: int
    content: bytes


def pooled_http() -> aiohttp.ClientSession:
    """A session to share among all RuntimeClients that reach pods over TCP; call it on the loop that uses it.

    Callers bound how much they do at once, so nothing is counted or queued here. The caller closes it.
    """
    return _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS))


def socket_http(path: str) -> aiohttp.ClientSession:
    """A session whose every request goes to the unix socket `path`; use it with SOCKET_BASE_URL."""
    return _session(aiohttp.UnixConnector(path, limit=0, keepalive_timeout=_IDLE_SECONDS))


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


class RuntimeClient:
    """The internal API of one agent pod. Every method raises Unavailable when the pod can't be reached or answers 5xx,
    and otherwise the error of runyard_api.errors that the pod named."""

    def __init__(
        self, base_url: str, *, token: str | None, http: aiohttp.ClientSession, term: int | None = None
    ) -> None:
        """`term`: of the leader whose commands these are; a pod that has heard a later one answers OldLeader. None:
        nobody else gives commands."""
        self._base = base_url.rstrip("/") + _PREFIX
        self._http = http
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        if term is not None:
            self._headers[TERM_HEADER] = str(term)

    async def start_run(self, run_id: str, start: RunStart) -> StartAnswer:
        """Asks the pod to execute an attempt; idempotent, so an unanswered call is repeated.

        Raises Held (with the holder), Stale, Early, NoSlot, Draining, NotFound (no such row), Unavailable.
        """
        response = await self._call("PUT", f"/runs/{run_id}", body=start, limits=_START)
        return StartAnswer(response.status == 201, _read(response, RunHeld))

    async def cancel(self, run_id: str, action: CancelAction, reason: str = "") -> None:
        """Asks the pod to stop a run; its end is reported on the status stream. Raises NotFound if it isn't held."""
        await self._call("POST", f"/runs/{run_id}/cancel", body=CancelRequest(action=action, reason=reason))

    async def ack(self, run_id: str) -> None:
        """Tells the pod that the run's terminal state is recorded, so that it may forget the run."""
        await self._call("POST", f"/runs/{run_id}/ack")

    async def events(
        self, run_id: str, after: EventId | None = None, *, live: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Yields the run's events with ids above `after` (None: from the first), then live ones until the run ends.

        `live` skips what has been and yields only what comes. The iterator ends after the `end` event, or without one
        when the pod knows the run only from the log. Raises NotFound on the first step for an unknown run.
        """
        async with aclosing(self.event_batches(run_id, after, live=live)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def event_batches(
        self, run_id: str, after: EventId | None = None, *, live: bool = False
    ) -> AsyncGenerator[list[Event], None]:
        """As `events`, but yields what arrived together as one non-empty list, in order."""
        params = {"live": "1"} if live else {"after": str(after)} if after else {}
        async with aclosing(self._lines(f"/runs/{run_id}/events", params, _EVENTS)) as chunks:
            async for lines in chunks:
                if batch := [Event.from_line(line) for line in lines if line]:
                    try:
                        yield batch
                    except GeneratorExit:
                        if batch[-1].mode == END:
                            await _read_out(chunks)
                        raise

    async def status(self) -> AsyncGenerator[StatusMessage, None]:
        """Yields a snapshot, then changes and a beat each second; ends when the pod closes the stream.

        Raises Unavailable after 6 s of silence or when the connection breaks.
        """
        async with aclosing(self._lines("/status", {}, _STATUS)) as chunks:
            async for lines in chunks:
                for line in lines:
                    if line:
                        yield StatusMessage.model_validate_json(line)

    async def ping(self) -> StatusMessage:
        """Proof of life in both directions; answers a snapshot without runs."""
        response = await self._call("POST", "/ping", limits=_PING)
        return _read(response, StatusMessage)

    async def info(self) -> RuntimeInfo:
        return _read(await self._call("GET", "/info"), RuntimeInfo)

    async def schemas(self, graph_id: str) -> GraphSchemas:
        """The graph's JSON schemas. Raises NotFound for a graph that the pod doesn't serve."""
        response = await self._call("GET", f"/graphs/{quote(graph_id, safe='')}/schemas", limits=_GRAPH)
        return _read(response, GraphSchemas)

    async def state(self, thread_id: str, query: StateQuery) -> dict[str, Any]:
        """One ThreadState in the API's own shape; of a thread without checkpoints: values {}, checkpoint None."""
        response = await self._call("POST", f"/threads/{thread_id}/state", body=query, limits=_GRAPH)
        return _json_object(response)

    async def history(self, thread_id: str, query: HistoryQuery) -> list[dict[str, Any]]:
        """ThreadStates, newest first."""
        response = await self._call("POST", f"/threads/{thread_id}/history", body=query, limits=_GRAPH)
        try:
            return _States.validate_json(response.content)
        except ValidationError as error:
            raise Unavailable("the agent pod answered with something that is no thread history") from error

    async def update(self, thread_id: str, update: StateUpdate) -> dict[str, Any]:
        """Writes values to a thread; answers {checkpoint, configurable, checkpoint_id}.

        Raises Held while a run holds the thread, BadRequest for values or a node that the graph refuses.
        """
        response = await self._call("POST", f"/threads/{thread_id}/update", body=update, limits=_GRAPH)
        return _json_object(response)

    async def _call(
        self, method: str, path: str, *, body: BaseModel | None = None, limits: aiohttp.ClientTimeout = _CALL
    ) -> _Answer:
        content = None if body is None else body.model_dump_json().encode()
        headers = self._headers if content is None else {**self._headers, "Content-Type": "application/json"}
        try:
            async with self._http.request(
                method, self._url(path), data=content, headers=headers, timeout=limits
            ) as response:
                answer = _Answer(response.status, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error
        if answer.status < 300:
            return answer
        raise _error_of(answer)

    async def _lines(
        self, path: str, params: dict[str, str], limits: aiohttp.ClientTimeout
    ) -> AsyncGenerator[list[bytes], None]:
        """Complete lines as they arrive, those of one chunk together.

        Split by hand: the reader's own lines have a limit, and a line here may be megabytes.
        """
        try:
            async with self._http.get(
                self._url(path), params=params, headers=self._headers, timeout=limits
            ) as response:
                if response.status >= 300:
                    raise _error_of(_Answer(response.status, await response.read()))
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if lines:
                        yield lines
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error

    def _url(self, path: str) -> URL:
        # Ids are quoted where they are put in; yarl would quote the percent signs again.
        return URL(self._base + path, encoded=True)


async def _read_out(chunks: AsyncGenerator[list[bytes], None]) -> None:
    """Reads a stream whose last event has come to its end, so that its connection serves the next request."""
    with suppress(TimeoutError, RunyardError):
        async with asyncio.timeout(_LAST_BYTES_SECONDS):
            async for _ in chunks:
                pass


def _unreachable(error: Exception) -> Unavailable:
    return Unavailable(f"the agent pod doesn't answer ({type(error).__name__})")


def _error_of(response: _Answer) -> RunyardError:
    try:
        body = ErrorBody.model_validate_json(response.content)
    except ValidationError:
        return error_for(response.status, "", f"the agent pod answered {response.status}")
    error = error_for(response.status, body.reason, body.detail)
    if isinstance(error, Held):
        error.holder = body.holder
    return error


def _read(response: _Answer, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise Unavailable(f"the agent pod answered with something that is no {model.__name__}") from error


def _json_object(response: _Answer) -> dict[str, Any]:
    try:
        value = orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Unavailable("the agent pod answered with something that is no JSON") from error
    if not isinstance(value, dict):
        raise Unavailable("the agent pod answered with something that is no JSON object")
    return value
