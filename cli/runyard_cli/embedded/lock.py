"""One process owns a state folder: the lock that says so. Called by `serve`.

The kernel gives the lock back when the process ends, however it ends, so a stale lock can't be. The owner's process id
is in the file until it leaves: one that is still there is of a process that was killed.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from runyard_cli.failure import CommandError


@contextlib.contextmanager
def owned(state: Path) -> Iterator[bool]:
    """Holds `<state>/lock` and makes the folder if absent; gives whether the owner before was killed.

    Raises CommandError when another process holds it.
    """
    with _open(state) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _named(fd)
            who = f" (process {holder})" if holder else ""
            raise CommandError(
                f"Another 'runyard dev'{who} uses the state folder {state}; stop it or choose a folder with --state."
            ) from None
        killed = bool(_named(fd))
        os.truncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        try:
            yield killed
        finally:
            os.truncate(fd, 0)


def _named(fd: int) -> str:
    """The process id in the file, empty without one."""
    content = os.pread(fd, 20, 0).decode(errors="replace").strip()
    return content if content.isdigit() else ""


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
