"""Running other programs with a deadline, and waiting for conditions. Called by all, calls `errors`."""

import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from runyard_cluster.errors import ClusterError

T = TypeVar("T")


def run(command: Sequence[str | Path], *, timeout: float = 60, text_in: str | None = None, check: bool = True) -> str:
    """Run a command and return what it printed on stdout.

    `timeout` is in seconds. Raises ClusterError when the program is missing, too slow or, with `check`, fails.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, input=text_in, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        raise ClusterError(f"The program {words[0]} is missing; `deps` tells which package has it.") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{shlex.join(words)}` did not end within {timeout:.0f} s.") from None
    if check and done.returncode:
        reason = done.stderr.strip() or done.stdout.strip() or "it said nothing"
        raise ClusterError(f"`{shlex.join(words)[:300]}` failed with exit code {done.returncode}: {reason[-1500:]}")
    return done.stdout


def succeeds(command: Sequence[str | Path], *, timeout: float = 20) -> bool:
    """Tell whether a command exits with 0 in time; its output is dropped."""
    try:
        words = [str(word) for word in command]
        return subprocess.run(words, capture_output=True, timeout=timeout, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def poll(check: Callable[[], T | None], *, timeout: float, interval: float = 0.1) -> T | None:
    """Call `check` until it returns something true, and return that; None when `timeout` seconds have passed."""
    deadline = time.monotonic() + timeout
    while True:
        if result := check():
            return result
        if time.monotonic() > deadline:
            return None
        time.sleep(interval)
