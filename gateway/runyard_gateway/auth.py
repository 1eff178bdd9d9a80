"""Who a request comes from: an API key or an identity provider's token becomes its user, once, before any route.

Plain ASGI; reads store.keys, calls oidc.py.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Literal, Protocol

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard_api.errors import RunyardError, Unauthenticated
from runyard_api.names import DEFAULT_USER
from runyard_api.tokens import bearer, token_hash
from runyard_gateway.failures import failure_of
from runyard_gateway.metrics import Metrics
from runyard_gateway.oidc import looks_like_token
from runyard_gateway.open_paths import OPEN_PATHS
from runyard_store.database import Database
from runyard_store.keys import user_of_key

CACHE_SECONDS, CACHE_SIZE = 10.0, 1024
LOOKUPS = 8
"""Keys that are looked up at the same time, at most: what isn't let in must not keep the others from the database."""
_ASK = "Provide a valid API key in the x-api-key header."
_ASK_EITHER = f"{_ASK[:-1]}, or a token of the identity provider in the Authorization header."


class Tokens(Protocol):
    """What takes tokens; oidc.OidcTokens is one."""

    async def user_of(self, token: str) -> str:
        """The token's user. Raises Unauthenticated, Unavailable."""
        ...


class KeyCache:
    """Users of keys that were valid a moment ago, by the key's hash; a revoked key works for CACHE_SECONDS more."""

    def __init__(self, db: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._db, self._clock = db, clock
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lookups = asyncio.Semaphore(LOOKUPS)

    async def user_of(self, key: str) -> str | None:
        """The key's user, or None. Raises Unavailable."""
        name = token_hash(key)
        if user := self._user(name):
            return user
        async with self._lookups:
            if user := self._user(name):
                return user
            now = self._clock()
            user = await user_of_key(self._db, key)
            self._known.pop(name, None)
            if user is not None:
                self._known[name] = (user, now + CACHE_SECONDS)
                if len(self._known) > CACHE_SIZE:
                    self._known.popitem(last=False)
        return user

    def _user(self, name: str) -> str | None:
        known = self._known.get(name)
        return known[0] if known and known[1] > self._clock() else None


class Authentication:
    """Puts the user into the request's state, or answers 401. With auth "none" everybody is the default user; `tokens`
    None: API keys alone are taken."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        auth: Literal["api-key", "none"],
        keys: KeyCache,
        tokens: Tokens | None = None,
        metrics: Metrics,
    ) -> None:
        self._app, self._auth, self._keys, self._tokens, self._metrics = app, auth, keys, tokens, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            user = DEFAULT_USER if self._auth == "none" or _is_open(scope) else await self._user(Headers(scope=scope))
        except RunyardError as error:
            self._metrics.authenticated("refused" if isinstance(error, Unauthenticated) else "unavailable")
            await failure_of(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["user"] = user
        await self._app(scope, receive, send)

    async def _user(self, headers: Headers) -> str:
        key, token = headers.get("x-api-key"), bearer(headers.get("authorization"))
        if not key and token and self._tokens and looks_like_token(token):
            user = await self._tokens.user_of(token)
            self._metrics.authenticated("token")
            return user
        credential = key or token
        if not credential:
            raise Unauthenticated(self._ask)
        owner = await self._keys.user_of(credential)
        if owner is None:
            raise Unauthenticated(f"The API key is not valid. {self._ask}")
        self._metrics.authenticated("key")
        return owner

    @property
    def _ask(self) -> str:
        return _ASK if self._tokens is None else _ASK_EITHER


def _is_open(scope: Scope) -> bool:
    return scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS"


async def _user_of(request: Request) -> str:
    user: str = request.state.user
    return user


User = Annotated[str, Depends(_user_of)]
"""The id of the user a route acts for."""
