"""Random values of a release: the token key, database passwords, API keys. Called by `bootstrap`."""

import secrets

API_KEY_PREFIX = "ry_"


def token_key() -> str:
    """The key K from which per-pod tokens are made: 256 bits as 64 hex digits."""
    return secrets.token_hex(32)


def password() -> str:
    """A database password, 192 bits, of letters and digits that need no escaping in a URL."""
    return secrets.token_hex(24)


def first_api_key() -> str:
    """An API key: `ry_` and 256 bits."""
    return API_KEY_PREFIX + secrets.token_urlsafe(32)
