"""Settings of the operator, read once from the environment by `__main__`."""

from collections.abc import Mapping
from dataclasses import dataclass

from runyard_operator.runs.decide import UNKNOWN_AGENT_SECONDS
from runyard_process.environment import Environment
from runyard_process.logs import DEFAULT_LOGS, LogSettings, log_settings


@dataclass(frozen=True)
class Settings:
    """RUNYARD_DATABASE_URL, RUNYARD_AGENTS_NAMESPACE, RUNYARD_TOKEN_KEY_FILE and RUNYARD_AGENT_DATABASE_SECRET are
    required. `database_url`: the operator's own access. `agents_namespace`: where Agents, Runs and their pods are.
    `token_key`: what pod tokens are derived from. `agent_database_secret`: the Secret in that namespace whose key `url`
    agent pods get. `env_secret_prefix`: how the names of Secrets in `envFrom` must begin (RUNYARD_ENV_SECRET_PREFIX).
    `probe_port`: /healthz and /readyz (RUNYARD_PROBE_PORT). `workers`: threads reconciled at once (RUNYARD_WORKERS, 8
    to 32). `unknown_agent_seconds`: how long a run waits for an Agent that doesn't exist
    (RUNYARD_UNKNOWN_AGENT_SECONDS). `max_finished_runs`: finished Run objects that are kept at most
    (RUNYARD_MAX_FINISHED_RUNS). `instance`: this operator's own name in Events (RUNYARD_POD_NAME).
    `lease_name`: the Lease in the agents' namespace whose holder works (RUNYARD_LEASE_NAME).
    `logs`: form and level of log lines.
    """

    database_url: str
    agents_namespace: str
    token_key: bytes
    agent_database_secret: str
    env_secret_prefix: str = "runyard-env-"
    probe_port: int = 8080
    workers: int = 32
    unknown_agent_seconds: int = UNKNOWN_AGENT_SECONDS
    max_finished_runs: int = 1000
    instance: str = "operator"
    lease_name: str = "runyard-operator"
    logs: LogSettings = DEFAULT_LOGS

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Reads and checks all of it. Raises BadSetting with one sentence naming the variable."""
        env = Environment(environ)
        settings = cls(
            database_url=env.required("RUNYARD_DATABASE_URL"),
            agents_namespace=env.required("RUNYARD_AGENTS_NAMESPACE"),
            token_key=env.key_file("RUNYARD_TOKEN_KEY_FILE"),
            agent_database_secret=env.required("RUNYARD_AGENT_DATABASE_SECRET"),
            env_secret_prefix=env.text("RUNYARD_ENV_SECRET_PREFIX", cls.env_secret_prefix),
            probe_port=env.whole("RUNYARD_PROBE_PORT", cls.probe_port, 1, 65_535),
            workers=env.whole("RUNYARD_WORKERS", cls.workers, 8, 32),
            unknown_agent_seconds=env.whole("RUNYARD_UNKNOWN_AGENT_SECONDS", cls.unknown_agent_seconds, 1, 86_400),
            max_finished_runs=env.whole("RUNYARD_MAX_FINISHED_RUNS", cls.max_finished_runs, 0, 100_000),
            instance=env.text("RUNYARD_POD_NAME", cls.instance),
            lease_name=env.text("RUNYARD_LEASE_NAME", cls.lease_name),
            logs=log_settings(env),
        )
        env.refuse_misspelled()
        return settings
