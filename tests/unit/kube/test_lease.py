"""Leadership by a Lease: one of several processes leads, knows until when, and hands over. On fake time."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.fake_time import run_in_fake_time

from runyard_api.crd import Manifest
from runyard_kube.errors import AlreadyExists, Conflict, NotFound, Unavailable
from runyard_kube.lease import LEASE_SECONDS, RENEW_DEADLINE_SECONDS, Held, Leadership, Observed, Place, next_term
from runyard_kube.lease import wait_until as free_from
from runyard_kube.resources import Resource

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Api:
    """An API server with at most one Lease."""

    lease: Manifest | None = None
    version: int = 0
    holders: list[str] = field(default_factory=list)

    def store(self, body: Manifest) -> Manifest:
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.holders.append(self.lease["spec"]["holderIdentity"])
        return self.lease


@dataclass
class Wire:
    """How one process reaches the API server. `away`: it gets errors; `cut`: it gets no answer; `unread`: so many of
    its next reads get errors."""

    api: Api
    away: bool = False
    cut: bool = False
    unread: int = 0

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        await self._answer()
        if self.api.lease is not None:
            raise AlreadyExists("there is one")
        return self.api.store(body)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        lease = await self._lease()
        if self.unread:
            self.unread -= 1
            raise Unavailable("no connection")
        return lease

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Manifest) -> Manifest:
        lease = await self._lease()
        if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise Conflict("it is newer")
        return self.api.store({**lease, "spec": {**lease.get("spec", {}), **body["spec"]}})

    async def _lease(self) -> Manifest:
        await self._answer()
        if self.api.lease is None:
            raise NotFound("there is none")
        return self.api.lease

    async def _answer(self) -> None:
        await asyncio.sleep(10_000 if self.cut else 0.01)
        if self.away:
            raise Unavailable("no connection")


class Candidate:
    """One process. `terms`: the numbers it led with; `led`: when each term began and ended, in fake seconds."""

    def __init__(self, api: Api, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.wire = Wire(api)
        self.terms: list[int] = []
        self.led: list[list[float]] = []
        self.leadership = Leadership(
            self.wire,
            Place("ns", "operator", name),
            clock=loop.time,
            now=lambda: NOW + timedelta(seconds=loop.time()),
        )
        self.task = asyncio.create_task(self.leadership.lead(self._term))

    @property
    def leads(self) -> bool:
        return bool(self.led) and len(self.led[-1]) == 1

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _term(self, term: int) -> None:
        clock = asyncio.get_running_loop().time
        self.terms.append(term)
        self.led.append([clock()])
        try:
            await asyncio.Event().wait()
        finally:
            self.led[-1].append(clock())


def play(scenario: Coroutine[Any, Any, None]) -> None:
    run_in_fake_time(scenario)


def test_the_first_leads_and_the_second_waits_as_long_as_the_first_renews() -> None:
    async def scenario() -> None:
        first, second = await _two(Api())
        await asyncio.sleep(120)
        assert (first.leads, len(first.led), second.led) == (True, 1, [])
        assert first.leadership.certain
        assert not second.leadership.certain
        await _end(first, second)

    play(scenario())


def test_a_leader_that_dies_is_followed_when_its_lease_has_run_out_and_never_before() -> None:
    async def scenario() -> None:
        first, second = await _two(Api())
        await asyncio.sleep(31)
        died = asyncio.get_running_loop().time()
        first.wire.cut = True
        await asyncio.sleep(10)
        assert second.leads
        assert first.led[0][1] <= died + RENEW_DEADLINE_SECONDS + 0.1
        assert first.led[0][1] < second.led[0][0] <= died + 8.5
        assert second.terms[0] > first.terms[0]
        await _end(first, second)

    play(scenario())


def test_a_leader_that_stops_releases_the_lease_and_the_other_leads_within_a_look() -> None:
    async def scenario() -> None:
        api = Api()
        first, second = await _two(api)
        await asyncio.sleep(10)
        await first.stop()
        stopped = asyncio.get_running_loop().time()
        assert api.holders[-1] == ""
        await asyncio.sleep(1.2)
        assert second.leads
        assert second.led[0][0] <= stopped + 1.2
        await _end(second)

    play(scenario())


def test_an_api_server_that_is_away_ends_the_term_in_time_and_a_new_one_begins_when_it_is_back() -> None:
    async def scenario() -> None:
        first, second = await _two(Api())
        await asyncio.sleep(10)
        first.wire.away = second.wire.away = True
        await asyncio.sleep(60)
        assert not first.leads
        assert not second.leads
        assert not first.leadership.certain
        first.wire.away = second.wire.away = False
        await asyncio.sleep(10)
        assert first.leads != second.leads
        terms = [*first.terms, *second.terms]
        assert len(set(terms)) == len(terms)
        await _end(first, second)

    play(scenario())


def test_a_short_silence_of_the_api_server_costs_no_term() -> None:
    async def scenario() -> None:
        first, second = await _two(Api())
        await asyncio.sleep(10)
        first.wire.away = True
        await asyncio.sleep(1.5)
        first.wire.away = False
        await asyncio.sleep(20)
        assert (len(first.led), second.led) == (1, [])
        await _end(first, second)

    play(scenario())


def test_a_lease_that_somebody_annotated_is_still_ours() -> None:
    async def scenario() -> None:
        api = Api()
        first, second = await _two(api)
        await asyncio.sleep(10)
        assert api.lease is not None
        api.store(api.lease)
        await asyncio.sleep(20)
        assert (len(first.led), first.leads, second.led) == (1, True, [])
        await _end(first, second)

    play(scenario())


def test_a_lease_that_is_newer_than_known_and_cannot_be_read_at_once_costs_no_term() -> None:
    async def scenario() -> None:
        api = Api()
        first, second = await _two(api)
        await asyncio.sleep(10)
        assert api.lease is not None
        api.store(api.lease)
        first.wire.unread = 2
        await asyncio.sleep(20)
        assert (len(first.led), first.leads, second.led, first.wire.unread) == (1, True, [], 0)
        await _end(first, second)

    play(scenario())


def test_a_lease_that_another_one_took_or_that_was_deleted_ends_the_term_at_the_next_renewal() -> None:
    async def scenario() -> None:
        api = Api()
        first, second = await _two(api)
        await asyncio.sleep(10)
        api.lease = None
        await asyncio.sleep(3)
        assert len(first.led[0]) == 2
        await asyncio.sleep(3)
        assert first.leads or second.leads
        assert max(first.terms + second.terms) > first.terms[0]
        await _end(first, second)

    play(scenario())


def test_what_a_term_raises_ends_the_candidate() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        leadership = Leadership(Wire(Api()), Place("ns", "operator", "a"), clock=loop.time, now=lambda: NOW)

        async def broken(term: int) -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await leadership.lead(broken)

    play(scenario())


def test_a_lease_may_be_taken_when_it_is_free_or_unchanged_for_its_duration() -> None:
    held = Held(holder="a", term=3, seconds=LEASE_SECONDS, version="7")
    assert free_from(Observed(held, since=100.0)) == 106.0
    assert free_from(Observed(Held("", 3, LEASE_SECONDS, "7"), since=100.0)) == 100.0
    assert free_from(Observed(None, since=100.0)) == 100.0


def test_terms_rise_also_over_a_lease_that_was_deleted_and_over_a_clock_that_went_back() -> None:
    first = next_term(None, NOW)
    assert next_term(Held("", first, LEASE_SECONDS, "1"), NOW) == first + 1
    assert next_term(None, NOW + timedelta(seconds=5)) > first
    assert next_term(Held("a", first, LEASE_SECONDS, "1"), NOW - timedelta(days=1)) == first + 1
    assert 0 < first < 2**31


async def _two(api: Api) -> tuple[Candidate, Candidate]:
    first = Candidate(api, "first")
    await asyncio.sleep(0.5)
    return first, Candidate(api, "second")


async def _end(*candidates: Candidate) -> None:
    for one in candidates:
        one.wire.cut = False
        await one.stop()
