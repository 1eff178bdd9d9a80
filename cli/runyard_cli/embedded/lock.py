"""One process owns a state folder: the lock that says so. Called by `serve`.

The kernel gives the lock back when the process ends, however it ends, so a stale lock can't be.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from runyard_cli.failure import CommandError


@contextlib.contextmanager
def owned(state: Path) -> Iterator[None]:
    """Holds `<state>/lock` and makes the folder if absent. Raises CommandError when another process holds it."""
    with _open(state) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
            who = f" (process {holder})" if holder.isdigit() else ""
            raise CommandError(
                f"Another 'runyard dev'{who} uses the state folder {state}; stop it or choose a folder with --state."
            ) from None
        os.truncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield


@contextlib.contextmanager
def _open(state: Path) -> Iterator[int]:
    try:
        state.mkdir(parents=True, exist_ok=True)
        fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(f"The state folder {state} can't be used: {error.strerror}.") from error
    try:
        yield fd
    finally:
        os.close(fd)
