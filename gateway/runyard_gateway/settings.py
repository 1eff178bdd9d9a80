"""The gateway's settings: what the application needs, and what the process around it needs. Read by __main__."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from runyard_process.environment import BadSetting, Environment
from runyard_process.logs import DEFAULT_LOGS, LogSettings, log_settings


@dataclass(frozen=True)
class OidcSettings:
    """Whose tokens are taken beside API keys: `issuer` and `audience` as in their claims; `jwks_url` None: as the
    issuer's discovery document says."""

    issuer: str
    audience: str
    jwks_url: str | None = None


Auth = Literal["api-key", "none"]
AUTH: dict[str, Auth] = {"api-key": "api-key", "none": "none"}


@dataclass(frozen=True)
class Settings:
    """`auth` "none" makes every caller the user "default"; origins as in CORS, `*` for any. The thread of a stateless
    run is deleted `temporary_thread_seconds` after its end, or up to `sweep_seconds` later. More than `max_requests` at
    work or `max_streams` open are answered with 503."""

    auth: Auth = "api-key"
    cors_origins: tuple[str, ...] = ("*",)
    heartbeat_seconds: float = 5.0
    temporary_thread_seconds: float = 60.0
    sweep_seconds: float = 5.0
    max_body_bytes: int = 64 * 2**20
    max_requests: int = 512
    max_streams: int = 5000


@dataclass(frozen=True)
class ServerSettings:
    """The process: `token_key` is what pod tokens are made from; `agents_namespace` the Agents;
    `metrics_port` 0: no metrics are served."""

    app: Settings
    database_url: str
    agents_namespace: str
    token_key: bytes
    port: int = 8000
    metrics_port: int = 0
    oidc: OidcSettings | None = None
    logs: LogSettings = DEFAULT_LOGS


def read_environment(environ: Mapping[str, str]) -> ServerSettings:
    """The settings in RUNYARD_* variables. Raises BadSetting with one sentence that names the variable."""
    env = Environment(environ)
    auth = env.choice("RUNYARD_AUTH", Settings.auth, AUTH)
    settings = ServerSettings(
        app=Settings(
            auth=auth,
            cors_origins=env.listed("RUNYARD_CORS_ORIGINS", Settings.cors_origins),
            heartbeat_seconds=env.number("RUNYARD_HEARTBEAT_SECONDS", Settings.heartbeat_seconds, 0.1, 60),
            # Those who wait for an end look at the row every 15 s at the latest, and must find it.
            temporary_thread_seconds=env.number(
                "RUNYARD_TEMPORARY_THREAD_SECONDS", Settings.temporary_thread_seconds, 30, 86400
            ),
            max_body_bytes=env.whole("RUNYARD_MAX_BODY_BYTES", Settings.max_body_bytes, 1024, 2**30),
            max_requests=env.whole("RUNYARD_MAX_REQUESTS", Settings.max_requests, 1, 100_000),
            max_streams=env.whole("RUNYARD_MAX_STREAMS", Settings.max_streams, 1, 100_000),
        ),
        database_url=env.required("RUNYARD_DATABASE_URL"),
        agents_namespace=env.required("RUNYARD_AGENTS_NAMESPACE"),
        token_key=env.key_file("RUNYARD_TOKEN_KEY_FILE"),
        port=env.whole("RUNYARD_PORT", ServerSettings.port, 1, 65535),
        metrics_port=env.whole("RUNYARD_METRICS_PORT", ServerSettings.metrics_port, 0, 65535),
        oidc=_oidc(env, auth),
        logs=log_settings(env),
    )
    env.refuse_misspelled()
    return settings


def _oidc(env: Environment, auth: str) -> OidcSettings | None:
    issuer, audience, jwks_url = (
        env.optional(name) for name in ("RUNYARD_OIDC_ISSUER", "RUNYARD_OIDC_AUDIENCE", "RUNYARD_OIDC_JWKS_URL")
    )
    if not issuer:
        if audience or jwks_url:
            raise BadSetting("RUNYARD_OIDC_ISSUER must be set when RUNYARD_OIDC_AUDIENCE or RUNYARD_OIDC_JWKS_URL is")
        return None
    if not audience:
        raise BadSetting(
            "RUNYARD_OIDC_AUDIENCE must be set when RUNYARD_OIDC_ISSUER is: tokens for other apps are none"
        )
    if auth == "none":
        raise BadSetting("RUNYARD_OIDC_ISSUER must not be set when RUNYARD_AUTH is none: tokens would mean nothing")
    for name, url in (("RUNYARD_OIDC_ISSUER", issuer), ("RUNYARD_OIDC_JWKS_URL", jwks_url)):
        if url and not _is_trustworthy(url):
            raise BadSetting(f"{name} must be an https:// URL (http:// only on loopback or within the cluster)")
    return OidcSettings(issuer, audience, jwks_url)


def _is_trustworthy(url: str) -> bool:
    """Whoever can change what a URL answers can be any user: TLS, or a network of our own."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    near = host in ("localhost", "127.0.0.1", "::1") or host.endswith((".svc", ".svc.cluster.local"))
    return bool(host) and not parts.query and (parts.scheme == "https" or (parts.scheme == "http" and near))
