"""Per-pod tokens: HMAC(K, namespace/pod/nonce). The pod spec carries only the token's SHA-256, so a token seen by code
inside a pod opens that pod alone, and the server in the pod needs no key. API keys are stored as SHA-256 alone too."""

import hashlib
import hmac


def pod_token(key: bytes, *, namespace: str, pod: str, nonce: str) -> str:
    """The bearer token for one pod, 64 hex digits; `nonce` is made anew at each creation of the pod."""
    return hmac.new(key, f"{namespace}/{pod}/{nonce}".encode(), hashlib.sha256).hexdigest()


def token_hash(token: str) -> str:
    """SHA-256 of a token or API key as 64 hex digits: what may be stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_matches(token: str, expected_hash: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(token_hash(token), expected_hash)


def bearer(header: str | None) -> str | None:
    """The token of an `Authorization: Bearer …` header, or None."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None
