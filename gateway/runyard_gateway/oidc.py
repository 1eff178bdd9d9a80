"""Tokens of an OpenID Connect provider: who they speak for, if they are its, for this audience, and in time.

Used by auth.py beside API keys; built by __main__. Calls jwks.py for keys and PyJWT for signatures and claims.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jwt
import orjson

from runyard_api.errors import Unauthenticated, Unavailable
from runyard_api.tokens import oidc_user_id
from runyard_gateway.jwks import ALGORITHMS, FetchJson, Jwks
from runyard_gateway.settings import OidcSettings

LONGEST_TOKEN, LONGEST_SUBJECT = 16 * 1024, 255
LEEWAY_SECONDS = 30.0
"""How far the provider's clock may be from ours."""

FETCH_SECONDS, MOST_BYTES = 5.0, 1024 * 1024
_NOT_VALID = "The token is not valid: "


class OidcTokens:
    """Users of the tokens of one issuer."""

    def __init__(self, settings: OidcSettings, jwks: Jwks) -> None:
        self._settings, self._jwks = settings, jwks

    async def user_of(self, token: str) -> str:
        """The token's user. Raises Unauthenticated with the reason, Unavailable while its key can't be looked up."""
        kid, algorithm = _header(token)
        key = await self._jwks.find(kid, algorithm)
        if key is None:
            raise Unauthenticated(f"{_NOT_VALID}its key is none of the identity provider's.")
        claims = self._claims(token, key.public, algorithm)
        subject = claims["sub"]
        if not isinstance(subject, str) or not 1 <= len(subject) <= LONGEST_SUBJECT:
            raise Unauthenticated(f"{_NOT_VALID}its subject must be 1 to {LONGEST_SUBJECT} characters.")
        return oidc_user_id(self._settings.issuer, subject)

    def _claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated(f"{_NOT_VALID}it has expired.") from None
        except jwt.InvalidAudienceError:
            raise Unauthenticated(f"{_NOT_VALID}it is for another audience.") from None
        except jwt.InvalidIssuerError:
            raise Unauthenticated(f"{_NOT_VALID}it is of another issuer.") from None
        except jwt.ImmatureSignatureError:
            raise Unauthenticated(f"{_NOT_VALID}it isn't valid yet.") from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthenticated(f"{_NOT_VALID}it has no claim {error.claim!r}.") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
            raise Unauthenticated(f"{_NOT_VALID}its signature or form is wrong.") from None


def _header(token: str) -> tuple[str | None, str]:
    """The key's id, None when it isn't named, and the algorithm."""
    if len(token) > LONGEST_TOKEN:
        raise Unauthenticated(f"{_NOT_VALID}it is longer than {LONGEST_TOKEN // 1024} KiB.")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated(f"{_NOT_VALID}its signature or form is wrong.") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise Unauthenticated(f"{_NOT_VALID}its algorithm must be one of {', '.join(sorted(ALGORITHMS))}.")
    if "crit" in header or not isinstance(kid, str | None):
        raise Unauthenticated(f"{_NOT_VALID}its header asks for what this server doesn't know.")
    return kid, algorithm


def looks_like_token(credential: str) -> bool:
    """Whether this is a token rather than an API key: three parts with dots between them."""
    return credential.count(".") == 2


def fetch_json(http: aiohttp.ClientSession) -> FetchJson:
    """Reads JSON by this client: no redirects, at most MOST_BYTES, within FETCH_SECONDS."""

    limits = aiohttp.ClientTimeout(total=FETCH_SECONDS)

    async def fetch(url: str) -> Any:
        try:
            async with http.get(url, allow_redirects=False, timeout=limits) as response:
                if response.status != 200:
                    raise Unavailable(f"The identity provider answers {response.status}; try again.")
                body = await response.content.read(MOST_BYTES)
                while len(body) < MOST_BYTES and (more := await response.content.read(MOST_BYTES - len(body))):
                    body += more
            return orjson.loads(body)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise Unavailable("The identity provider doesn't answer; try again.") from error

    return fetch


@asynccontextmanager
async def open_oidc(settings: OidcSettings | None) -> AsyncIterator[OidcTokens | None]:
    """The issuer's tokens, with an HTTP client of their own, for as long as the block lasts; None without settings."""
    if settings is None:
        yield None
        return
    async with aiohttp.ClientSession(trust_env=True) as http:
        yield OidcTokens(settings, Jwks(settings.issuer, settings.jwks_url, fetch_json(http)))
