"""Random values of a release: the token key, database passwords, API keys. Called by `bootstrap`."""

import secrets

from runyard_api.tokens import API_KEY_BYTES, api_key


def token_key() -> str:
    """The key K from which per-pod tokens are made: 256 bits as 64 hex digits."""
    return secrets.token_hex(32)


def password() -> str:
    """A database password, 192 bits, of letters and digits that need no escaping in a URL."""
    return secrets.token_hex(24)


def first_api_key() -> str:
    """An API key of 256 bits."""
    return api_key(secrets.token_bytes(API_KEY_BYTES))
