"""The public keys of one OpenID Connect provider: found by discovery, kept, read again when one is missing.

Used by oidc.py; what fetches is passed in. A provider that is away takes nothing from keys that are known.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError

from runyard_api.errors import RunyardError, Unavailable

log = structlog.get_logger(__name__)
FetchJson = Callable[[str], Awaitable[Any]]
"""Reads one URL as JSON. Raises Unavailable when it doesn't answer with any in time."""

FRESH_SECONDS = 300.0
"""How old the keys may become before they are read again, in the background: one that was withdrawn ends by then."""

ASK_AGAIN_SECONDS = 10.0
"""How long after one reading a token with an unknown key causes no other; anybody can send such tokens."""

AFTER_FAILURE_SECONDS = 2.0
MOST_KEYS, SMALLEST_RSA_BITS = 100, 2048
_RSA: tuple[str, ...] = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE: dict[str, tuple[str, ...]] = {
    "P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "secp256k1": ("ES256K",), "Ed25519": ("EdDSA",),
}  # fmt: skip
ALGORITHMS = frozenset({*_RSA, "ES256", "ES384", "ES512", "ES256K", "EdDSA"})
"""Asymmetric ones alone: with HS256 a public key would be a password that everybody knows."""


@dataclass(frozen=True)
class SigningKey:
    """A public key, and the algorithms that a signature with it may have."""

    kid: str | None
    algorithms: tuple[str, ...]
    public: Any


class Jwks:
    """Keys of an issuer. `url`: where they are; None asks the issuer's discovery document."""

    def __init__(
        self, issuer: str, url: str | None, fetch: FetchJson, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._issuer, self._url, self._fetch, self._clock = issuer, url, fetch, clock
        self._keys: Sequence[SigningKey] = ()
        self._read_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """The key that a token names, or the only one that fits a token that names none; None when there is no such.

        Raises Unavailable when the key isn't known here and the provider can't be asked.
        """
        if found := self._known(kid, algorithm):
            self._keep_fresh()
            return found
        async with self._reading:
            if found := self._known(kid, algorithm):
                return found
            since = self._clock() - self._tried_at
            if self._failed and since < AFTER_FAILURE_SECONDS:
                raise Unavailable("The identity provider doesn't answer; try again.")
            if self._failed or since >= ASK_AGAIN_SECONDS:
                await self._read()
            return self._known(kid, algorithm)

    @property
    def _failed(self) -> bool:
        return self._tried_at > self._read_at

    def _known(self, kid: str | None, algorithm: str) -> SigningKey | None:
        fitting = [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]
        return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None

    def _keep_fresh(self) -> None:
        running = self._background is not None and not self._background.done()
        pause = AFTER_FAILURE_SECONDS if self._failed else FRESH_SECONDS
        if not running and self._clock() - max(self._read_at + FRESH_SECONDS, self._tried_at + pause) >= 0:
            self._background = asyncio.create_task(self._read_again())

    async def _read_again(self) -> None:
        try:
            async with self._reading:
                await self._read()
        except RunyardError as error:
            log.warning("the identity provider's keys can't be read again", reason=error.detail)

    async def _read(self) -> None:
        began = self._tried_at = self._clock()
        try:
            keys = await self._listed()
        except RunyardError:
            self._tried_at = self._clock()  # those who waited for this reading don't wait for one each
            raise
        self._keys = signing_keys(keys)
        self._read_at = began
        log.info("read the identity provider's keys", issuer=self._issuer, keys=len(self._keys))

    async def _listed(self) -> list[Any]:
        document = await self._fetch(self._url or await self._discovered())
        keys = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(keys, list):
            raise Unavailable("The identity provider's key set is none; try again.")
        return keys

    async def _discovered(self) -> str:
        found = await self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        url = found.get("jwks_uri") if isinstance(found, dict) else None
        if not isinstance(url, str) or found.get("issuer") != self._issuer:
            log.error("the discovery document isn't the issuer's", issuer=self._issuer)
            raise Unavailable("The identity provider's discovery document doesn't fit its issuer.")
        if url.partition(":")[0] != self._issuer.partition(":")[0]:
            raise Unavailable("The identity provider's keys are at a URL of another scheme than its own.")
        return url


def signing_keys(documents: Sequence[Any]) -> list[SigningKey]:
    """Those of a key set that can verify signatures of ALGORITHMS; the others are left out."""
    found = []
    for document in documents[:MOST_KEYS]:
        if isinstance(document, dict) and (key := _signing_key(document)):
            found.append(key)
    return found


def _signing_key(document: dict[str, Any]) -> SigningKey | None:
    allowed = _RSA if document.get("kty") == "RSA" else _BY_CURVE.get(str(document.get("crv")), ())
    if named := document.get("alg"):
        allowed = tuple(algorithm for algorithm in allowed if algorithm == named)
    signs = document.get("use") in (None, "sig") and "verify" in document.get("key_ops", ("verify",))
    if not allowed or not signs or "d" in document or document.get("kty") == "oct":
        return None
    try:
        public = PyJWK.from_dict(document, algorithm=allowed[0]).key
    except (PyJWTError, ValueError, TypeError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < SMALLEST_RSA_BITS:
        return None
    kid = document.get("kid")
    return SigningKey(kid if isinstance(kid, str) else None, allowed, public)
