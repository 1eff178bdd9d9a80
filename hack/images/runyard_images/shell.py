"""Running other programs with a deadline, and saying how long things took. Called by all, calls `errors`."""

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runyard_images.errors import ImagesError


def run(command: Sequence[str | Path], *, timeout: float, show: bool = False) -> str:
    """Run a command and return its stdout; with `show` what it says goes to the terminal and "" is returned.

    `timeout` is in seconds. Raises ImagesError when the program is missing, too slow or fails.
    """
    words = [str(word) for word in command]
    pipe = None if show else subprocess.PIPE
    try:
        done = subprocess.run(words, stdout=pipe, stderr=pipe, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        raise ImagesError(f"The program {words[0]} is missing; on Debian: apt-get install {words[0]}") from None
    except subprocess.TimeoutExpired:
        raise ImagesError(f"`{shlex.join(words)[:200]}` did not end within {timeout:.0f} s.") from None
    if done.returncode:
        said = "" if show else f": {(done.stderr or done.stdout).strip()[-1500:]}"
        raise ImagesError(f"`{shlex.join(words)[:300]}` failed with exit code {done.returncode}{said}")
    return done.stdout or ""


def succeeds(command: Sequence[str | Path], *, timeout: float = 30) -> bool:
    """Tell whether a command exits with 0 in time; its output is dropped."""
    try:
        return subprocess.run(command, capture_output=True, timeout=timeout, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what begins, and how long it took once it is done."""
    say(f"{what} …")
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


def say(line: str) -> None:
    """Print one line of progress."""
    print(f"images: {line}", file=sys.stderr, flush=True)
