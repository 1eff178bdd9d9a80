"""Ending exactly the processes that this tool started: a pid counts only with the start time noted beside it."""

import contextlib
import json
import os
import select
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from runyard_cluster.errors import ClusterError


@dataclass(frozen=True)
class Process:
    """A process of this machine; `started` (clock ticks since boot) tells it from a later one with the same pid."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Tell whether this very process still runs; a zombie doesn't."""
        return start_time(self.pid) == self.started

    def kill(self, *, timeout: float = 10, number: int = signal.SIGKILL) -> None:
        """Send a signal to this very process and wait for its end; nothing happens if it has ended.

        Raises ClusterError when it still runs after `timeout` seconds.
        """
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.alive():  # checked with the handle open: from here on the pid can't change its meaning
                return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            if not select.select([handle], [], [], timeout)[0]:
                raise ClusterError(f"Process {self.pid} still runs {timeout:.0f} s after signal {number}.")
        finally:
            os.close(handle)


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def identify(pid: int) -> Process:
    """Return the running process with this pid; raises ClusterError when there is none."""
    started = start_time(pid)
    if started is None:
        raise ClusterError(f"Process {pid} ended as soon as it was started.")
    return Process(pid, started)


def write_process(path: Path, process: Process) -> None:
    """Note a process in a file."""
    path.write_text(json.dumps(asdict(process)))


def read_process(path: Path) -> Process | None:
    """Return the process noted in a file; None when there is no such note."""
    try:
        return Process(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
