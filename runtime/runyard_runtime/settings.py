"""Settings of the runtime, read once from the environment by `__main__`; `runyard dev` builds the dataclass itself."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from runyard_api.agent import RunDefaults
from runyard_api.names import RUNTIME_PORT
from runyard_process.environment import BadSetting, Environment
from runyard_process.logs import DEFAULT_LOGS, LogSettings, log_settings
from runyard_runtime.termination import LOG


@dataclass(frozen=True)
class Settings:
    """What one runtime process is told.

    `database_url` as runyard_store takes it · `config` path of langgraph.json · `graphs` id → "path:variable", in place
    of the file's (None: the file's) · `slots` runs at a time · `max_runs` taken in all (0: any number) · `port` TCP ·
    `token_sha256` hash of the bearer token (None: no token asked, for a private unix socket) · `pod_name` names the
    holder of leases · `recursion_limit` steps, unless a run says otherwise · `drain_seconds` for runs to stop at a step
    boundary · `stop_grace_seconds` for sync code to end after a cancel · `termination_log` where a failed start leaves
    its reason (None: nowhere) · `pool_size` database connections of the server, and again as many for checkpoints ·
    `logs` form and level of log lines.
    """

    database_url: str
    config: Path = Path("langgraph.json")
    graphs: Mapping[str, str] | None = None
    slots: int = 10
    max_runs: int = 0
    port: int = RUNTIME_PORT
    token_sha256: str | None = None
    pod_name: str = field(default_factory=lambda: os.uname().nodename)
    recursion_limit: int = RunDefaults().recursion_limit
    drain_seconds: float = 60
    stop_grace_seconds: float = 30
    termination_log: Path | None = None
    pool_size: int = 10
    logs: LogSettings = DEFAULT_LOGS


def settings_from_env(environ: Mapping[str, str]) -> Settings:
    """Reads RUNYARD_… variables. Raises BadSetting naming the first one that is missing or wrong."""
    env = Environment(environ)
    token = env.text("RUNYARD_TOKEN_SHA256", "")
    if len(token) != 64:
        raise BadSetting("RUNYARD_TOKEN_SHA256 must be the SHA-256 of the pod's token as 64 hex digits")
    settings = Settings(
        database_url=env.required("RUNYARD_DATABASE_URL"),
        config=Path(env.text("RUNYARD_CONFIG", str(Settings.config))),
        graphs=_graphs(env),
        slots=env.whole("RUNYARD_SLOTS", Settings.slots, 1, 1000),
        max_runs=env.whole("RUNYARD_MAX_RUNS", Settings.max_runs, 0, 1_000_000),
        port=env.whole("RUNYARD_PORT", Settings.port, 1, 65535),
        token_sha256=token,
        pod_name=env.text("RUNYARD_POD_NAME", os.uname().nodename),
        recursion_limit=env.whole("RUNYARD_RECURSION_LIMIT", Settings.recursion_limit, 1, 1_000_000),
        drain_seconds=env.whole("RUNYARD_DRAIN_SECONDS", int(Settings.drain_seconds), 0, 86_400),
        stop_grace_seconds=env.whole("RUNYARD_STOP_GRACE_SECONDS", int(Settings.stop_grace_seconds), 0, 86_400),
        termination_log=Path(env.text("RUNYARD_TERMINATION_LOG", LOG)),
        pool_size=env.whole("RUNYARD_POOL_SIZE", Settings.pool_size, 1, 100),
        logs=log_settings(env),
    )
    env.refuse_misspelled()
    return settings


def _graphs(env: Environment) -> Mapping[str, str] | None:
    text = env.optional("RUNYARD_GRAPHS")
    if not text:
        return None
    try:
        graphs = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadSetting(f"RUNYARD_GRAPHS must be a JSON map from graph id to path:variable ({error})") from error
    if not isinstance(graphs, dict) or not all(isinstance(v, str) for v in graphs.values()):
        raise BadSetting("RUNYARD_GRAPHS must be a JSON map from graph id to path:variable")
    return graphs
