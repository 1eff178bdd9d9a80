"""Settings of the runtime, read once from the environment by `__main__`; `runyard dev` builds the dataclass itself."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from runyard_api.agent import RunDefaults
from runyard_api.names import RUNTIME_PORT


class BadSetting(Exception):
    """A setting is missing or wrong; the text is one line that names the variable."""


@dataclass(frozen=True)
class Settings:
    """What one runtime process is told.

    `database_url` as runyard_store takes it · `config` path of langgraph.json · `graphs` id → "path:variable", in place
    of the file's (None: the file's) · `slots` runs at a time · `port` TCP · `token_sha256` hash of the bearer token
    (None: no token asked, for a private unix socket) · `pod_name` names the holder of leases · `recursion_limit` steps,
    unless a run says otherwise · `drain_seconds` for runs to stop at a step boundary · `stop_grace_seconds` for sync
    code to end after a cancel · `termination_log` where a failed start leaves its reason (None: nowhere) · `pool_size`
    database connections of the server, and again as many for checkpoints.
    """

    database_url: str
    config: Path = Path("langgraph.json")
    graphs: Mapping[str, str] | None = None
    slots: int = 10
    port: int = RUNTIME_PORT
    token_sha256: str | None = None
    pod_name: str = field(default_factory=lambda: os.uname().nodename)
    recursion_limit: int = RunDefaults().recursion_limit
    drain_seconds: float = 60
    stop_grace_seconds: float = 30
    termination_log: Path | None = None
    pool_size: int = 10


def settings_from_env(env: Mapping[str, str]) -> Settings:
    """Reads RUNYARD_… variables. Raises BadSetting naming the first one that is missing or wrong."""
    log = Path(env.get("RUNYARD_TERMINATION_LOG", "/dev/termination-log"))
    token = env.get("RUNYARD_TOKEN_SHA256", "")
    if len(token) != 64:
        raise BadSetting("RUNYARD_TOKEN_SHA256 must be the SHA-256 of the pod's token as 64 hex digits")
    return Settings(
        database_url=_required(env, "RUNYARD_DATABASE_URL"),
        config=Path(env.get("RUNYARD_CONFIG", Settings.config)),
        graphs=_graphs(env),
        slots=_integer(env, "RUNYARD_SLOTS", default=Settings.slots, lowest=1, highest=1000),
        port=_integer(env, "RUNYARD_PORT", default=Settings.port, lowest=1, highest=65535),
        token_sha256=token,
        pod_name=env.get("RUNYARD_POD_NAME") or os.uname().nodename,
        recursion_limit=_integer(
            env, "RUNYARD_RECURSION_LIMIT", default=Settings.recursion_limit, lowest=1, highest=1_000_000
        ),
        drain_seconds=_integer(env, "RUNYARD_DRAIN_SECONDS", default=Settings.drain_seconds, lowest=0, highest=86_400),
        stop_grace_seconds=_integer(
            env, "RUNYARD_STOP_GRACE_SECONDS", default=Settings.stop_grace_seconds, lowest=0, highest=86_400
        ),
        termination_log=log,
        pool_size=_integer(env, "RUNYARD_POOL_SIZE", default=Settings.pool_size, lowest=1, highest=100),
    )


def _required(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise BadSetting(f"{name} is not set")
    return env[name]


def _integer(env: Mapping[str, str], name: str, *, default: float, lowest: int, highest: int) -> int:
    text = env.get(name) or f"{default:.0f}"
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise BadSetting(f"{name} must be a whole number from {lowest} to {highest}, not {text[:40]!r}")
    return int(text)


def _graphs(env: Mapping[str, str]) -> Mapping[str, str] | None:
    text = env.get("RUNYARD_GRAPHS")
    if not text:
        return None
    try:
        graphs = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadSetting(f"RUNYARD_GRAPHS must be a JSON map from graph id to path:variable ({error})") from error
    if not isinstance(graphs, dict) or not all(isinstance(v, str) for v in graphs.values()):
        raise BadSetting("RUNYARD_GRAPHS must be a JSON map from graph id to path:variable")
    return graphs
