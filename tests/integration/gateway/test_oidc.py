"""Tokens of an identity provider that is served on loopback: whose they are, every way they can be wrong, outages."""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.api_jws import PyJWS
from tests.integration.gateway.test_outages import OneAgent
from tests.support.issuer import AUDIENCE, Issuer, Key, running_issuer, unsigned
from tests.support.store_rows import NOW

from runyard_api.errors import Unavailable
from runyard_gateway.app import Deps, create_app
from runyard_gateway.jwks import ASK_AGAIN_SECONDS, FRESH_SECONDS, Jwks, signing_keys
from runyard_gateway.oidc import OidcTokens, open_oidc
from runyard_gateway.settings import OidcSettings, Settings
from runyard_store.database import Database
from runyard_store.keys import add_key
from runyard_store.threads import get_thread

RSA, EC, OTHER = Key.rsa("r"), Key.ec("e"), Key.rsa("r")


@dataclass
class World:
    issuer: Issuer
    http: httpx.AsyncClient
    db: Database

    async def answer(self, token: str) -> httpx.Response:
        return await self.http.post("/threads", json={}, headers={"authorization": f"Bearer {token}"})


@pytest.fixture
async def world(db: Database) -> AsyncIterator[World]:
    await add_key(db, "ry_key", "bob", "test", NOW)
    async with running_issuer(RSA, EC, Key.ed25519("d")) as issuer, open_oidc(settings(issuer)) as tokens:
        app = create_app(Settings(), Deps(db, OneAgent(), tokens=tokens))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
            yield World(issuer, http, db)


def settings(issuer: Issuer) -> OidcSettings:
    return OidcSettings(issuer.url, AUDIENCE)


@pytest.mark.parametrize("key", [RSA, EC, Key("r", "RS512", RSA.private, {}), Key("r", "PS256", RSA.private, {})])
async def test_a_token_is_its_subject_at_this_issuer(world: World, key: Key) -> None:
    answer = await world.answer(world.issuer.token(key))
    assert answer.status_code == 200, answer.text
    user = "u-" + hashlib.sha256(world.issuer.url.encode() + b"\0alice").hexdigest()
    assert (await get_thread(world.db, answer.json()["thread_id"], user)).user_id == user


async def test_a_token_without_a_key_id_takes_the_only_key_that_fits(world: World) -> None:
    assert (await world.answer(world.issuer.token(EC, header={"kid": None}))).status_code == 200


async def test_one_of_several_audiences_and_a_clock_a_little_off_are_fine(world: World) -> None:
    soon, lately = int(time.time()) + 20, int(time.time()) - 20
    token = world.issuer.token(RSA, aud=["other", AUDIENCE], nbf=soon, iat=soon, exp=lately)
    assert (await world.answer(token)).status_code == 200


async def test_keys_work_beside_tokens_in_both_headers(world: World) -> None:
    for headers in ({"x-api-key": "ry_key"}, {"authorization": "Bearer ry_key"}):
        assert (await world.http.post("/threads", json={}, headers=headers)).status_code == 200
    refused = await world.http.post("/threads", json={})
    assert refused.status_code == 401
    assert "token of the identity provider" in refused.json()["detail"]
    assert refused.headers["www-authenticate"] == "Bearer"


def public_pem() -> bytes:
    return bytes(RSA.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def hmac_with(secret: bytes) -> Callable[[Issuer], str]:
    def make(issuer: Issuer) -> str:
        head = unsigned({"alg": "HS256", "kid": "r"}, issuer.claims()).rpartition(".")[0]
        signature = hmac.new(secret, head.encode(), hashlib.sha256).digest()
        return head + "." + unsigned({}, {}, signature).rpartition(".")[2]

    return make


def expired(issuer: Issuer) -> str:
    return issuer.token(RSA, exp=int(time.time()) - 60)


ATTACKS: dict[str, Callable[[Issuer], str]] = {
    "no signature, alg none": lambda i: unsigned({"alg": "none", "kid": "r"}, i.claims()),
    "no signature, alg None": lambda i: unsigned({"alg": "None", "kid": "r"}, i.claims()),
    "no algorithm": lambda i: unsigned({"kid": "r"}, i.claims()),
    "algorithm of another type": lambda i: unsigned({"alg": ["RS256"], "kid": "r"}, i.claims()),
    "HS256 with the public key": hmac_with(public_pem()),
    "HS256 with nothing": hmac_with(b""),
    "empty signature": lambda i: unsigned({"alg": "RS256", "kid": "r"}, i.claims()),
    "another key under the same id": lambda i: i.token(OTHER),
    "the key of another type": lambda i: i.token(EC, header={"kid": "r"}),
    "a key it brings itself": lambda i: i.token(OTHER, header={"jwk": OTHER.jwk}),
    "a key it points to": lambda i: i.token(OTHER, header={"jku": "http://evil/keys", "kid": "evil"}),
    "an unknown key id": lambda i: i.token(RSA, header={"kid": "nope"}),
    "a key id that is a path": lambda i: i.token(RSA, header={"kid": "../../dev/null"}),
    "an id of another type": lambda i: unsigned({"alg": "RS256", "kid": 1}, i.claims(), b"x"),
    "a critical extension": lambda i: i.token(RSA, header={"crit": ["x"], "x": 1}),
    "another audience": lambda i: i.token(RSA, aud="other"),
    "no audience": lambda i: i.token(RSA, aud=None),
    "another issuer": lambda i: i.token(RSA, iss="http://127.0.0.1"),
    "an issuer that begins the same": lambda i: i.token(RSA, iss=i.url + "/"),
    "no issuer": lambda i: i.token(RSA, iss=None),
    "expired": expired,
    "no end": lambda i: i.token(RSA, exp=None),
    "an end beyond all": lambda i: i.token(RSA, exp=float("inf")),
    "an end that is no number": lambda i: i.token(RSA, exp="soon"),
    "not yet": lambda i: i.token(RSA, nbf=int(time.time()) + 60),
    "no subject": lambda i: i.token(RSA, sub=None),
    "an empty subject": lambda i: i.token(RSA, sub=""),
    "a subject of another type": lambda i: signed(i.claims(sub=1)),
    "a very long one": lambda i: i.token(RSA, roles="x" * 20_000),
    "a huge one": lambda _: "a." * 1 + "b" * 60_000 + ".c",
    "deep nesting in the header": lambda _: unsigned_text('{"alg":' + "[" * 5000),
    "no JSON": lambda _: "a.b.c",
    "nothing between dots": lambda _: "..",
}


def signed(claims: dict[str, Any]) -> str:
    """What PyJWT wouldn't sign as a token."""
    return PyJWS().encode(orjson.dumps(claims), RSA.private, "RS256", headers={"kid": "r"})


def unsigned_text(header: str) -> str:
    return base64.urlsafe_b64encode(header.encode()).rstrip(b"=").decode() + ".e30.x"


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_a_token_that_is_wrong_is_401_with_the_reason(world: World, attack: Callable[[Issuer], str]) -> None:
    answer = await world.answer(attack(world.issuer))
    assert answer.status_code == 401, answer.text
    assert set(answer.json()) == {"detail"}


async def test_a_token_is_no_api_key(world: World) -> None:
    token = world.issuer.token(RSA)
    assert (await world.http.post("/threads", json={}, headers={"x-api-key": token})).status_code == 401


async def test_a_provider_that_is_away_is_503_until_it_answers(world: World) -> None:
    world.issuer.up = False
    answer = await world.answer(world.issuer.token(RSA))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (await world.http.post("/threads", json={}, headers={"x-api-key": "ry_key"})).status_code == 200


async def test_a_provider_that_goes_away_takes_nothing_from_known_keys(world: World) -> None:
    assert (await world.answer(world.issuer.token(RSA))).status_code == 200
    world.issuer.up = False
    assert (await world.answer(world.issuer.token(EC))).status_code == 200
    assert (await world.answer(world.issuer.token(RSA, aud="other"))).status_code == 401


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def fetcher(issuer: Issuer) -> Any:
    async def fetch(url: str) -> Any:
        async with httpx.AsyncClient() as http:
            answer = await http.get(url)
        if answer.status_code != 200:
            raise Unavailable("away")
        return answer.json()

    return fetch


async def test_a_new_key_is_found_by_reading_again_and_unknown_ones_do_not_make_us_ask_each_time() -> None:
    clock, new = Clock(), Key.rsa("new")
    async with running_issuer(RSA) as issuer:
        jwks = Jwks(issuer.url, None, await fetcher(issuer), clock)
        assert await jwks.find("r", "RS256")
        assert [await jwks.find("nope", "RS256") for _ in range(20)] == [None] * 20
        assert issuer.reads == 1
        issuer.keys = [new.jwk]
        clock.now += ASK_AGAIN_SECONDS
        assert await jwks.find("new", "RS256")
        assert issuer.reads == 2
        assert await jwks.find("r", "RS256") is None


async def test_those_who_wait_for_a_provider_that_does_not_answer_wait_for_one_reading_together() -> None:
    clock, asked = Clock(), []

    async def silent(url: str) -> Any:
        asked.append(url)
        await asyncio.sleep(0)
        clock.now += 5
        raise Unavailable("no answer")

    jwks = Jwks("https://issuer.test", "https://issuer.test/keys", silent, clock)
    answers = await asyncio.gather(*(jwks.find("k", "RS256") for _ in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * 5
    assert len(asked) == 1


async def test_a_withdrawn_key_ends_when_the_set_is_read_again_in_the_background() -> None:
    clock = Clock()
    async with running_issuer(RSA, EC) as issuer:
        jwks = Jwks(issuer.url, f"{issuer.url}/keys", await fetcher(issuer), clock)
        assert await jwks.find("r", "RS256")
        issuer.keys = [EC.jwk]
        clock.now += FRESH_SECONDS
        assert await jwks.find("r", "RS256")  # still, while it is read again
        assert jwks._background
        await jwks._background
        assert await jwks.find("r", "RS256") is None


async def test_discovery_of_another_issuer_is_no_discovery(db: Database) -> None:
    async with running_issuer(RSA) as issuer:
        issuer.named = "http://evil"
        jwks = Jwks(issuer.url, None, await fetcher(issuer))
        app = create_app(Settings(), Deps(db, OneAgent(), tokens=OidcTokens(settings(issuer), jwks)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
            headers = {"authorization": f"Bearer {issuer.token(RSA)}"}
            assert (await http.post("/threads", json={}, headers=headers)).status_code == 503
            assert issuer.reads == 0


def test_a_key_set_gives_only_public_keys_that_sign() -> None:
    secret = {"kty": "oct", "k": "AAAA", "kid": "s"}
    private = {**RSA.jwk, "d": "AQAB"}
    weak = Key.rsa("w", bits=1024).jwk
    encrypts = {**RSA.jwk, "use": "enc"}
    cut = {"kty": "RSA", "n": "AQAB"}
    rest: list[Any] = [None, "x", {}, {"kty": "EC", "crv": "P-999"}]
    assert signing_keys([secret, private, weak, encrypts, cut, *rest]) == []
    (only,) = signing_keys([{**RSA.jwk, "alg": "RS512"}])
    assert only.algorithms == ("RS512",)
