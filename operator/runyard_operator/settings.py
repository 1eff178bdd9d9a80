"""Settings of the operator, read once from the environment by `__main__`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runyard_operator.runs.decide import UNKNOWN_AGENT_SECONDS

MIN_KEY_BYTES = 32


@dataclass(frozen=True)
class Settings:
    """RUNYARD_DATABASE_URL, RUNYARD_AGENTS_NAMESPACE, RUNYARD_TOKEN_KEY_FILE and RUNYARD_AGENT_DATABASE_SECRET are
    required. `database_url`: the operator's own access. `agents_namespace`: where Agents, Runs and their pods are.
    `token_key`: what pod tokens are derived from. `agent_database_secret`: the Secret in that namespace whose key `url`
    agent pods get. `env_secret_prefix`: how the names of Secrets in `envFrom` must begin (RUNYARD_ENV_SECRET_PREFIX).
    `probe_port`: /healthz and /readyz (RUNYARD_PROBE_PORT). `workers`: threads reconciled at once (RUNYARD_WORKERS, 8
    to 32). `unknown_agent_seconds`: how long a run waits for an Agent that doesn't exist
    (RUNYARD_UNKNOWN_AGENT_SECONDS). `instance`: this operator's own name in Events (RUNYARD_POD_NAME).
    """

    database_url: str
    agents_namespace: str
    token_key: bytes
    agent_database_secret: str
    env_secret_prefix: str = "runyard-env-"
    probe_port: int = 8080
    workers: int = 32
    unknown_agent_seconds: int = UNKNOWN_AGENT_SECONDS
    instance: str = "operator"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Reads and checks all of it. Raises ValueError with one sentence naming the variable."""
        return cls(
            database_url=_required(environ, "RUNYARD_DATABASE_URL"),
            agents_namespace=_required(environ, "RUNYARD_AGENTS_NAMESPACE"),
            token_key=_key(_required(environ, "RUNYARD_TOKEN_KEY_FILE")),
            agent_database_secret=_required(environ, "RUNYARD_AGENT_DATABASE_SECRET"),
            env_secret_prefix=environ.get("RUNYARD_ENV_SECRET_PREFIX") or cls.env_secret_prefix,
            probe_port=_number(environ, "RUNYARD_PROBE_PORT", cls.probe_port, 1, 65_535),
            workers=_number(environ, "RUNYARD_WORKERS", cls.workers, 8, 32),
            unknown_agent_seconds=_number(
                environ, "RUNYARD_UNKNOWN_AGENT_SECONDS", cls.unknown_agent_seconds, 1, 86_400
            ),
            instance=environ.get("RUNYARD_POD_NAME") or cls.instance,
        )


def _required(environ: Mapping[str, str], name: str) -> str:
    if value := environ.get(name, "").strip():
        return value
    raise ValueError(f"{name} must be set")


def _key(path: str) -> bytes:
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise ValueError(f"RUNYARD_TOKEN_KEY_FILE {path} can't be read: {error.strerror}") from error
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"RUNYARD_TOKEN_KEY_FILE {path} must hold at least {MIN_KEY_BYTES} bytes")
    return key


def _number(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdigit() or not low <= int(text) <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {text[:20]!r}")
    return int(text)
