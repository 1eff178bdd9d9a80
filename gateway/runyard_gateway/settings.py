"""The gateway's settings: what the application needs, and what the process around it needs. Read by __main__."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """`auth` "none" makes every caller the user "default"; origins as in CORS, `*` for any. The thread of a stateless
    run is deleted `temporary_thread_seconds` after its end, or up to `sweep_seconds` later."""

    auth: Literal["api-key", "none"] = "api-key"
    cors_origins: tuple[str, ...] = ("*",)
    heartbeat_seconds: float = 5.0
    temporary_thread_seconds: float = 60.0
    sweep_seconds: float = 5.0


@dataclass(frozen=True)
class ServerSettings:
    """The process: `token_key_file` holds the key from which pod tokens are made; `agents_namespace` the Agents."""

    app: Settings
    database_url: str
    agents_namespace: str
    token_key_file: str
    port: int = 8000


def read_environment(env: Mapping[str, str]) -> ServerSettings:
    """The settings in RUNYARD_* variables. Raises ValueError with one sentence that names the variable."""
    return ServerSettings(
        app=Settings(
            auth=_auth(env.get("RUNYARD_AUTH", Settings.auth)),
            cors_origins=_origins(env.get("RUNYARD_CORS_ORIGINS", "*")),
            heartbeat_seconds=_number(env, "RUNYARD_HEARTBEAT_SECONDS", Settings.heartbeat_seconds, low=0.1, high=60),
            # Those who wait for an end look at the row every 15 s at the latest, and must find it.
            temporary_thread_seconds=_number(
                env, "RUNYARD_TEMPORARY_THREAD_SECONDS", Settings.temporary_thread_seconds, low=30, high=86400
            ),
        ),
        database_url=_required(env, "RUNYARD_DATABASE_URL"),
        agents_namespace=_required(env, "RUNYARD_AGENTS_NAMESPACE"),
        token_key_file=_required(env, "RUNYARD_TOKEN_KEY_FILE"),
        port=int(_number(env, "RUNYARD_PORT", ServerSettings.port, low=1, high=65535)),
    )


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise ValueError(f"{name} must be set")
    return value


def _auth(value: str) -> Literal["api-key", "none"]:
    if value == "api-key":
        return "api-key"
    if value == "none":
        return "none"
    raise ValueError(f"RUNYARD_AUTH must be api-key or none, not {value!r}")


def _origins(value: str) -> tuple[str, ...]:
    origins = tuple(origin.strip() for origin in value.split(",") if origin.strip())
    if not origins:
        raise ValueError("RUNYARD_CORS_ORIGINS must be * or origins separated by commas")
    return origins


def _number(env: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    text = env.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, not {text!r}")
    return value
