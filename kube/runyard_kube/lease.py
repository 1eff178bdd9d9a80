"""Leadership by a Lease (coordination.k8s.io/v1): one process of several holds it, and knows until when for certain.

`decide` is pure; `Leadership` reads and writes the Lease through a KubeClient. Used by the operator (`leading`). Clocks
of other machines are never read: a rival's lease has run out when it hasn't changed for its duration by our own clock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Protocol

import structlog

from runyard_api.crd import Manifest
from runyard_kube.errors import Conflict, KubeError, NotFound
from runyard_kube.resources import LEASES, Resource

LEASE_SECONDS = 6
"""How long a holder that is silent keeps the lease."""
RENEW_SECONDS = 2.0
RENEW_DEADLINE_SECONDS = 4.0
"""Seconds after the beginning of the last renewal that succeeded at which its holder stops; the rest until
LEASE_SECONDS is for what it had already sent."""
WATCH_SECONDS = 1.0
"""How often a standby looks."""
CALL_SECONDS = 2.0
RENEW_PAUSE_SECONDS = 0.25
_FIRST_TERM = datetime(2025, 1, 1, tzinfo=UTC)

log = structlog.get_logger()


@dataclass(frozen=True)
class Held:
    """A Lease as read. `holder` "" when it was released; `version` is its resourceVersion."""

    holder: str
    term: int
    seconds: int
    version: str


@dataclass(frozen=True)
class Observed:
    """`held`: the Lease, None when there is none; `since`: our own monotonic time when it last looked different."""

    held: Held | None
    since: float


def wait_until(observed: Observed) -> float:
    """The monotonic time from which the Lease may be taken; never later than its holder's silence allows."""
    held = observed.held
    return observed.since if held is None or not held.holder else observed.since + held.seconds


def next_term(held: Held | None, now: datetime) -> int:
    """The number of the leader to come: larger than every one before, also when the Lease was deleted in between,
    because the first one of a Lease is the seconds since 2025."""
    return max(int((now - _FIRST_TERM).total_seconds()), held.term + 1 if held else 0)


def spec_of(identity: str, term: int, acquired: datetime, now: datetime) -> Manifest:
    """The spec of a Lease held by `identity`."""
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": LEASE_SECONDS,
        "leaseTransitions": term,
        "acquireTime": _micro_time(acquired),
        "renewTime": _micro_time(now),
    }


def held_of(raw: Manifest) -> Held:
    """A Lease as read; one that was never held has no holder and term 0."""
    spec = raw.get("spec") or {}
    return Held(
        holder=spec.get("holderIdentity") or "",
        term=int(spec.get("leaseTransitions") or 0),
        seconds=int(spec.get("leaseDurationSeconds") or LEASE_SECONDS),
        version=raw["metadata"]["resourceVersion"],
    )


def _micro_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseClient(Protocol):
    """What is needed of `runyard_kube.client.KubeClient`."""

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest: ...
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...
    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest: ...


Term = Callable[[int], Awaitable[None]]
"""What a leader does in its term, until it is cancelled; the argument is the number of the term."""


@dataclass(frozen=True)
class Place:
    """Where the Lease is, and who wants it: `identity` is of one process alone."""

    namespace: str
    name: str
    identity: str


class Leadership:
    """Runs a term while this process leads. `clock`: monotonic seconds; `now`: what is written for people to read."""

    def __init__(
        self,
        client: LeaseClient,
        place: Place,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._place = client, place
        self._clock, self._now = clock, now
        self._observed: Observed | None = None
        self._ours: Held | None = None
        self._began = 0.0

    @property
    def certain(self) -> bool:
        """Whether nobody else can be leading at this moment: to be asked before each write."""
        return self._ours is not None and self._clock() < self._began + RENEW_DEADLINE_SECONDS

    async def lead(self, term: Term) -> None:
        """Waits for the Lease, leads, waits again, until it is cancelled; then the Lease is released.

        A term ends by being cancelled, when the Lease couldn't be renewed in time or another one has it. Raises what
        `term` raises.
        """
        while True:
            await self._acquire()
            await self._serve(term)

    async def _acquire(self) -> None:
        """Returns once the Lease is ours."""
        while True:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._try_to_take()
            except (KubeError, TimeoutError) as error:
                log.warning("lease can't be read or taken", lease=self._place.name, error=str(error) or "no answer")
            if self._ours is not None:
                return
            left = 0.0 if self._observed is None else wait_until(self._observed) - self._clock()
            await asyncio.sleep(left if 0 < left < WATCH_SECONDS else WATCH_SECONDS)

    async def _try_to_take(self) -> None:
        began = self._clock()
        held = await self._read()
        if self._observed is None or self._observed.held != held:
            self._observed = Observed(held, began)
        if wait_until(self._observed) > self._clock():
            return
        at = self._now()
        spec = spec_of(self._place.identity, next_term(held, at), at, at)
        try:
            taken = await (self._create(spec) if held is None else self._write(spec, held.version))
        except Conflict:
            log.debug("another one took the lease", lease=self._place.name)
            return
        self._ours, self._began = taken, began

    async def _serve(self, term: Term) -> None:
        assert self._ours is not None
        log.info("leading", term=self._ours.term, identity=self._place.identity)
        serving = asyncio.ensure_future(term(self._ours.term))
        keeping = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({serving, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            log.warning("not leading any more", identity=self._place.identity)
        finally:
            for task in (serving, keeping):
                task.cancel()
            await asyncio.gather(serving, keeping, return_exceptions=True)
            await self._release()

    async def _keep(self) -> None:
        """Renews the Lease; returns when that didn't succeed in time, or another one has it."""
        acquired = self._now()
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                async with asyncio.timeout(self._began + RENEW_DEADLINE_SECONDS - self._clock()):
                    await self._renew(acquired)
            except TimeoutError:
                log.warning("lease not renewed in time", lease=self._place.name)
            if not self.certain:
                return

    async def _renew(self, acquired: datetime) -> None:
        """Tries until it succeeds or the Lease is lost."""
        for pause in chain((0.0,), repeat(RENEW_PAUSE_SECONDS)):
            await asyncio.sleep(pause)
            if not self.certain or await self._renewed(acquired):
                return

    async def _renewed(self, acquired: datetime) -> bool:
        """One try; False: try again. What another one holds isn't ours any more."""
        assert self._ours is not None
        began, ours = self._clock(), self._ours
        try:
            try:
                spec = spec_of(self._place.identity, ours.term, acquired, self._now())
                self._ours, self._began = await self._write(spec, ours.version), began
                return True
            except Conflict:
                found = await self._read()
                mine = found is not None and (found.holder, found.term) == (self._place.identity, ours.term)
                self._ours = found if mine else None
        except NotFound:
            self._ours = None
        except KubeError as error:
            log.warning("lease not renewed", lease=self._place.name, error=str(error))
        return False

    async def _release(self) -> None:
        """Lets a standby lead at once; without an answer it waits until the Lease has run out."""
        ours, self._ours, self._observed = self._ours, None, None
        if ours is None:
            return
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._write({"holderIdentity": ""}, ours.version)
        except (KubeError, TimeoutError) as error:
            log.info("lease not released", lease=self._place.name, error=str(error) or "no answer")

    async def _read(self) -> Held | None:
        try:
            return held_of(await self._client.get(LEASES, self._place.namespace, self._place.name))
        except NotFound:
            return None

    async def _create(self, spec: Manifest) -> Held:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._place.name, "namespace": self._place.namespace},
            "spec": spec,
        }
        return held_of(await self._client.create(LEASES, self._place.namespace, body))

    async def _write(self, spec: Manifest, version: str) -> Held:
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        return held_of(await self._client.patch(LEASES, self._place.namespace, self._place.name, body))
