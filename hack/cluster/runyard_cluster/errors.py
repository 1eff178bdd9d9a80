"""The one exception of the tool: whatever is raised as it reaches the user as one plain sentence."""

from pathlib import Path


class ClusterError(Exception):
    """Something the user can read and act on; `cli` prints it on stderr and exits with 1."""


def last_lines(path: Path, count: int = 12) -> str:
    """Return the last lines of a log, indented, or a note that there are none."""
    try:
        lines = path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        lines = []
    return "\n".join(f"    {line[:400]}" for line in lines) or "    (nothing logged)"


def timed_out(what: str, component: str, log: Path, seconds: float) -> ClusterError:
    """Return the error for something that a component didn't do in time, with the end of its log."""
    return ClusterError(
        f"{what} did not happen within {seconds:.0f} s; the log of {component} is {log}:\n{last_lines(log)}"
    )
