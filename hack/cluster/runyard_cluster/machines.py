"""Starting, ending and watching machines: the control plane and the nodes. Called by `up`, `policy` and `status`.

A machine's folder in the state holds machine.json (what it is), pid.json (its pid 1), status.json, off/ and log/.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from runyard_cluster import cgroups, network
from runyard_cluster.components import CONTAINERD_SOCKET, Machine
from runyard_cluster.errors import ClusterError, last_lines
from runyard_cluster.processes import Process, identify, read_process, write_process
from runyard_cluster.settings import CONTROL_PLANE, SOURCE, Settings
from runyard_cluster.shell import run


@dataclass(frozen=True)
class MachineDir:
    """The folder of a machine that was defined once, running or not."""

    path: Path

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.path.name

    @property
    def process(self) -> Process | None:
        """Its pid 1, running or not; None: never started."""
        return read_process(self.path / "pid.json")

    def alive(self) -> bool:
        """Tell whether the machine runs."""
        return (process := self.process) is not None and process.alive()

    def log(self, component: str) -> Path:
        """Return a component's log."""
        return self.path / "log" / f"{component}.log"

    def switch(self, component: str, *, on: bool) -> None:
        """Tell the machine to keep a component running or stopped; it follows within 0.1 s."""
        flag = self.path / "off" / component
        if on:
            flag.unlink(missing_ok=True)
        else:
            flag.touch()

    def status(self) -> dict[str, dict[str, str | int]]:
        """Return component -> {state: running, off or restarting; starts: number of starts}; empty when not running."""
        try:
            loaded: dict[str, dict[str, str | int]] = json.loads((self.path / "status.json").read_text())
        except (OSError, ValueError):
            return {}
        return loaded if self.alive() else {}

    def runs(self) -> bool:
        """Tell whether the machine runs and every component that is switched on runs too."""
        parts = self.status()
        return bool(parts) and all(part["state"] != "restarting" for part in parts.values())

    def containerd_socket(self) -> Path:
        """Return containerd's socket as the host sees it; raises ClusterError when the machine doesn't run."""
        if (process := self.process) is None or not process.alive():
            raise ClusterError(f"{self.name} doesn't run.")
        return Path(f"/proc/{process.pid}/root{CONTAINERD_SOCKET}")

    def in_network(self, *command: str | Path, text_in: str | None = None, check: bool = True) -> str:
        """Run a host's program in the machine's network; raises ClusterError like `run`."""
        if (process := self.process) is None:
            raise ClusterError(f"{self.name} doesn't run.")
        return run(["nsenter", f"--net=/proc/{process.pid}/ns/net", *command], text_in=text_in, check=check)


@dataclass(frozen=True)
class Marker:
    """What `up` notes of a cluster; a state folder without this note was not made here and is never removed."""

    nodes: int
    bin: str
    """The folder of its binaries."""


def marker_path(settings: Settings) -> Path:
    """Return where the note is."""
    return settings.state / "cluster.json"


def read_marker(settings: Settings) -> Marker:
    """Return the note about the cluster; raises ClusterError when there is no cluster."""
    try:
        return Marker(**json.loads(marker_path(settings).read_text()))
    except FileNotFoundError:
        raise ClusterError(f"No cluster is up (there is none in {settings.state}).") from None


def machine_dirs(settings: Settings) -> list[MachineDir]:
    """Return every machine of the cluster, the control plane first; empty when there is no cluster."""
    found = sorted(path.parent for path in settings.state.glob("*/machine.json"))
    return sorted(map(MachineDir, found), key=lambda machine: machine.name != CONTROL_PLANE)


def node_dirs(settings: Settings) -> list[MachineDir]:
    """Return the nodes, in order."""
    return [machine for machine in machine_dirs(settings) if machine.name != CONTROL_PLANE]


def find_node(settings: Settings, name: str) -> MachineDir:
    """Return a node by name; raises ClusterError when there is none."""
    nodes = node_dirs(settings)
    for node in nodes:
        if node.name == name:
            return node
    known = ", ".join(node.name for node in nodes) or "none: no cluster is up"
    raise ClusterError(f"There is no node {name}; the nodes are {known}.")


def define(machine: Machine, files: dict[str, str]) -> MachineDir:
    """Write a machine's folder: its definition and files, with the components switched off that wait for the API."""
    directory = MachineDir(Path(machine.directory))
    for folder in ("log", "off"):
        (directory.path / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
        (directory.path / name).write_text(content)
    for component in machine.components:
        if component.waits:
            directory.switch(component.name, on=False)
    (directory.path / "machine.json").write_text(machine.to_json())
    return directory


def boot(directory: MachineDir) -> None:
    """Start a defined machine and connect it; raises ClusterError when it doesn't start."""
    definition = Machine.from_json((directory.path / "machine.json").read_text())
    for point in definition.binds:
        Path(point).mkdir(parents=True, exist_ok=True)
    if directory.name != CONTROL_PLANE:
        cgroups.make(directory.name)
    (directory.path / "status.json").unlink(missing_ok=True)
    pid = int(run([sys.executable, SOURCE, "_machine", directory.path / "machine.json"], timeout=20))
    try:
        write_process(directory.path / "pid.json", identify(pid))
        network.plug_in(directory.name, pid)
    except ClusterError as error:
        log = directory.log("supervisor")
        raise ClusterError(f"{directory.name} didn't start: {error} Its log is {log}:\n{last_lines(log)}") from None


def kill(directory: MachineDir) -> None:
    """Kill a machine's pid 1, and with it everything on it; nothing happens when it doesn't run."""
    if process := directory.process:
        process.kill()
    network.unplug(directory.name)
    if directory.name != CONTROL_PLANE:
        cgroups.remove(directory.name)
