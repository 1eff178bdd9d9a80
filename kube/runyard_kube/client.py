"""The async client of the Kubernetes API: one method per verb, raw JSON in and out, every call bounded in time.

Used by the operator, the gateway and the informer. Logs in through `kubernetes.aio`; requests carry none of its
generated models, which cost more time and memory than all the rest of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
import orjson

from runyard_api.crd import Manifest
from runyard_kube.errors import Gone, Unavailable, error_of, error_of_status
from runyard_kube.login import Login, log_in
from runyard_kube.resources import Resource

JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
CLOSE_GRACE = 0.05
"""Seconds that `close` leaves to connections whose request was cancelled: their TLS close waits for the server's answer
and no one else waits for them."""


@dataclass(frozen=True)
class ClientSettings:
    """`pool_size`: connections at most, watches included. Times in seconds; `timeout` bounds a call but a watch."""

    pool_size: int = 64
    timeout: float = 30.0
    connect_timeout: float = 10.0
    page_size: int = 500


@dataclass(frozen=True)
class Selection:
    """Which objects of a collection are meant, in the API server's selector syntax; None: all."""

    labels: str | None = None
    fields: str | None = None

    def query(self) -> dict[str, str]:
        pairs = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in pairs.items() if value is not None}


EVERYTHING = Selection()


@dataclass(frozen=True)
class Listing:
    """The objects of a collection at one `resource_version`; a watch goes on from there."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """One change. A BOOKMARK's object carries nothing but the resourceVersion reached."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Manifest


@dataclass(frozen=True)
class _Call:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Manifest | None = None
    content_type: str = JSON
    accept: str = JSON


class KubeClient:
    """Every method raises the errors of `runyard_kube.errors`; no answer in time or no connection is Unavailable."""

    def __init__(
        self,
        login: Login,
        settings: ClientSettings = ClientSettings(),
        *,
        observe: Callable[[str, int], None] = lambda verb, code: None,
    ) -> None:
        """`observe` is told of every request: its verb (watch among them) and the answer's code, 0 without one."""
        self._observe = observe
        self._login = login
        self._settings = settings
        self._timeout = aiohttp.ClientTimeout(total=settings.timeout, connect=settings.connect_timeout)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=settings.pool_size, ssl=login.tls), read_bufsize=2**20
        )

    @classmethod
    async def open(
        cls,
        kubeconfig: Path | None = None,
        settings: ClientSettings = ClientSettings(),
        *,
        observe: Callable[[str, int], None] = lambda verb, code: None,
    ) -> Self:
        """A client for the API server that `log_in` finds."""
        return cls(await log_in(kubeconfig), settings, observe=observe)

    async def close(self) -> None:
        """Closes all connections, watches included."""
        await self._session.close()
        await asyncio.sleep(CLOSE_GRACE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        """Creates an object and gives it back as stored. Raises AlreadyExists, Invalid, Forbidden."""
        return await self._json(_Call("POST", resource.path(namespace), body=body))

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        """Reads one object, from etcd rather than from a cache of the server. Raises NotFound."""
        return await self._json(_Call("GET", resource.path(namespace, name)))

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        selection: Selection = EVERYTHING,
        metadata_only: bool = False,
    ) -> Listing:
        """Reads a whole collection, page by page, as of one moment. `metadata_only`: items hold only `metadata`.

        Starts again once if a page has expired meanwhile; raises Gone if that happens twice.
        """
        try:
            return await self._pages(resource, namespace, selection, metadata_only)
        except Gone:
            return await self._pages(resource, namespace, selection, metadata_only)

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest:
        """Applies a JSON merge patch (None removes a key, lists are replaced) and gives the object back.

        Raises Conflict if `body` holds a metadata.resourceVersion that is no longer the object's.
        """
        return await self._json(_Call("PATCH", resource.path(namespace, name), body=body, content_type=MERGE_PATCH))

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Manifest, *, resource_version: str | None = None
    ) -> Manifest:
        """Merges `status` into the object's status and gives the object back.

        `resource_version`: raise Conflict unless the object still has it. None: no precondition.
        """
        body: Manifest = {"status": status}
        if resource_version is not None:
            body["metadata"] = {"resourceVersion": resource_version}
        path = resource.path(namespace, name, "status")
        return await self._json(_Call("PATCH", path, body=body, content_type=MERGE_PATCH))

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes one object; dependants follow in the background. Raises NotFound.

        `uid`: raise Conflict unless it is still this object. `grace_seconds`: for pods; 0: at once, None: their own.
        """
        body: Manifest = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._json(_Call("DELETE", resource.path(namespace, name), body=body))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        resource_version: str,
        selection: Selection = EVERYTHING,
        server_seconds: int = 600,
        idle_seconds: float = 70.0,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yields changes after `resource_version` until the server ends the watch, at `server_seconds` at the latest.

        Bookmarks come about every minute, so `idle_seconds` without a byte mean a dead connection: Unavailable. Raises
        Gone if the version is too old. Close the iterator (contextlib.aclosing) to end the request.
        """
        query = selection.query() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(server_seconds),
        }
        limits = aiohttp.ClientTimeout(connect=self._settings.connect_timeout, sock_read=idle_seconds)
        call = _Call("GET", resource.path(namespace), query=query)
        try:
            async with await self._send(call, limits) as response:
                try:
                    await _raise_for(response)
                    async for line in _lines(response.content):
                        yield _event_of(line)
                finally:
                    _abort(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the watch of {resource.plural} broke: {_said(error)}") from error

    async def _pages(
        self, resource: Resource, namespace: str | None, selection: Selection, metadata_only: bool
    ) -> Listing:
        query = selection.query() | {"limit": str(self._settings.page_size)}
        accept = METADATA_LIST if metadata_only else JSON
        items: list[Manifest] = []
        while True:
            page = await self._json(_Call("GET", resource.path(namespace), query=query, accept=accept))
            items += page["items"] or ()  # null where a list of metadata is empty
            head = page["metadata"]
            if not head.get("continue"):
                return Listing(items, head["resourceVersion"])
            query = query | {"continue": head["continue"]}

    async def _json(self, call: _Call) -> Manifest:
        try:
            async with await self._send(call, self._timeout) as response:
                await _raise_for(response)
                answer: Manifest = orjson.loads(await response.read())
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{call.method} {call.path}: {_said(error)}") from error
        except orjson.JSONDecodeError as error:
            raise Unavailable(f"{call.method} {call.path}: the answer isn't JSON") from error

    async def _send(self, call: _Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {"Accept": call.accept, "User-Agent": "runyard"}
        authorization = await self._login.authorization()
        if authorization:
            headers["Authorization"] = authorization
        options: dict[str, Any] = {}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
            options["data"] = orjson.dumps(call.body)
        verb, code = "watch" if "watch" in call.query else call.method.lower(), 0
        try:
            response = await self._session.request(
                call.method,
                self._login.host + call.path,
                params=call.query,
                headers=headers,
                timeout=limits,
                server_hostname=self._login.server_name,
                proxy=self._login.proxy,
                **options,
            )
            code = response.status
        finally:
            self._observe(verb, code)
        return response


async def _raise_for(response: aiohttp.ClientResponse) -> None:
    if response.status >= 300:
        raise error_of(response.status, await response.read(), response.headers)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Ends a response that is left in the middle: a polite TLS close would wait for the server's own."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: the reader's own iterator refuses those over its buffer, and an object may be 1.5 MB."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _event_of(line: bytes) -> WatchEvent:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Unavailable("the watch sent a line that isn't JSON") from error
    if event["type"] == "ERROR":
        raise error_of_status(event["object"])
    return WatchEvent(event["type"], event["object"])


def _said(error: BaseException) -> str:
    """What went wrong in words; a timeout has none of its own."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
