"""What a cluster looks like at the moment, as text for the report of a failed test. Called by `conftest`."""

import subprocess

from tests.e2e.servers import AGENTS, RELEASE, Cluster

LINES = 60  # of each log
COMMANDS = (
    ("get", "pods", "-A", "-o", "wide"),
    ("get", "agents", "-n", AGENTS, "-o", "wide"),
    ("get", "runs", "-n", AGENTS, "--sort-by=.metadata.creationTimestamp", "-o", "wide"),
    ("describe", "agents", "-n", AGENTS),
    ("get", "events", "-A", "--sort-by=.lastTimestamp"),
    *(
        ("logs", "-n", RELEASE, "-l", f"app.kubernetes.io/component={part}", "--prefix", f"--tail={LINES}", *before)
        for part in ("gateway", "operator")
        for before in ((), ("--previous", "--ignore-errors"))
    ),
    ("logs", "-n", AGENTS, "-l", "runyard.dev/agent", "--prefix", f"--tail={LINES}", "--ignore-errors"),
)


def describe(cluster: Cluster) -> str:
    """The answers of all commands, each cut to its last lines; a command that fails says so in its place."""
    return "\n\n".join(f"$ kubectl {' '.join(command)}\n{_answer(cluster, command)}" for command in COMMANDS)


def _answer(cluster: Cluster, command: tuple[str, ...]) -> str:
    try:
        lines = cluster.kubectl(*command, timeout=20).splitlines()
    except (AssertionError, subprocess.TimeoutExpired) as error:
        lines = str(error).splitlines()
    return "\n".join(lines[-2 * LINES :])
