"""Per-pod tokens: HMAC(K, namespace/pod/nonce). The pod spec carries only the token's SHA-256, so a token seen by code
inside a pod opens that pod alone, and the server in the pod needs no key. API keys are stored as SHA-256 alone too."""

import base64
import hashlib
import hmac

API_KEY_PREFIX = "ry_"
API_KEY_BYTES = 32


def pod_token(key: bytes, *, namespace: str, pod: str, nonce: str) -> str:
    """The bearer token for one pod, 64 hex digits; `nonce` is made anew at each creation of the pod."""
    return hmac.new(key, f"{namespace}/{pod}/{nonce}".encode(), hashlib.sha256).hexdigest()


def api_key(random: bytes) -> str:
    """The API key made of API_KEY_BYTES random bytes: a prefix that secret scanners can look for, and base64url."""
    return API_KEY_PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()


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


def oidc_user_id(issuer: str, subject: str) -> str:
    """The user id of an OIDC subject: `u-` and 64 hex digits; always the same, and no other issuer's subject has it."""
    return "u-" + hashlib.sha256(issuer.encode() + b"\0" + subject.encode()).hexdigest()
