"""An OpenID Connect provider on loopback: discovery, a key set that tests change, and tokens signed as they like."""

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "runyard"


@dataclass
class Key:
    """A private key, the algorithm it signs with, and the public half as a JWK."""

    kid: str
    algorithm: str
    private: Any
    jwk: dict[str, Any]

    @classmethod
    def rsa(cls, kid: str = "r", algorithm: str = "RS256", bits: int = 2048) -> "Key":
        private = rsa.generate_private_key(65537, bits)
        return cls(kid, algorithm, private, {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": kid})

    @classmethod
    def ec(cls, kid: str = "e") -> "Key":
        private = ec.generate_private_key(ec.SECP256R1())
        return cls(kid, "ES256", private, {**ECAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": kid})

    @classmethod
    def ed25519(cls, kid: str = "d") -> "Key":
        private = ed25519.Ed25519PrivateKey.generate()
        return cls(kid, "EdDSA", private, {**OKPAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": kid})


@dataclass
class Issuer:
    """`up` False: every request gets 500. `reads` counts those of the key set."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    up: bool = True
    reads: int = 0
    named: str | None = None
    """The issuer that the discovery document names; None: its own URL."""

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Claims of a good token; a change to None leaves the claim out."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "nbf": now, "exp": now + 300}
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    def token(self, key: Key, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        headers = {"kid": key.kid, **(header or {})}
        kept = {name: value for name, value in headers.items() if value is not None}
        return jwt.encode(self.claims(**changes), key.private, key.algorithm, headers=kept)

    async def _discovery(self, _: web.Request) -> web.Response:
        document = {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"}
        return web.json_response(document, status=200 if self.up else 500)

    async def _keys(self, _: web.Request) -> web.Response:
        self.reads += 1
        return web.json_response({"keys": self.keys}, status=200 if self.up else 500)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)
        return app


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token put together by hand."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@asynccontextmanager
async def running_issuer(*keys: Key) -> AsyncIterator[Issuer]:
    """Serves until the block ends."""
    issuer = Issuer(keys=[key.jwk for key in keys])
    runner = web.AppRunner(issuer.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        await runner.cleanup()
