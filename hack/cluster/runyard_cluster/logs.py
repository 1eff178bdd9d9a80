"""Finding and showing the log of a component. Called by `cli`; calls `machines`."""

import os
from pathlib import Path

from runyard_cluster import machines
from runyard_cluster.errors import ClusterError
from runyard_cluster.settings import Settings


def find_log(settings: Settings, component: str, node: str | None) -> Path:
    """Return a component's log: on the named machine, or on the first one that runs it. Raises ClusterError."""
    every = machines.machine_dirs(settings)
    if not every:
        raise ClusterError("No cluster is up, so there are no logs.")
    asked = [machine for machine in every if node in (None, machine.name)]
    if not asked:
        raise ClusterError(f"There is no machine {node}; there are {', '.join(machine.name for machine in every)}.")
    for machine in asked:
        if machine.log(component).exists():
            return machine.log(component)
    known = sorted({path.stem for machine in asked for path in (machine.path / "log").glob("*.log")})
    raise ClusterError(f"There is no log of {component}; there are logs of {', '.join(known)}.")


def show(log: Path, *, follow: bool) -> None:
    """Print a log, and with `follow` what comes after; this process becomes `tail`."""
    os.execvp("tail", ["tail", "-n", "+1", *(["-F"] if follow else []), str(log)])
