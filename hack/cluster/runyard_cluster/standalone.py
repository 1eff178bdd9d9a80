"""An API server with its etcd and nothing else: for tests that need no pods. Called by `cli`.

Several can run at once, and root isn't needed. The folder holds kubeconfig, pki/, etcd/, NAME.log and NAME.pid.json.
There are no controllers: no garbage collection, and a deleted namespace stays.
"""

import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from runyard_cluster.api import Api
from runyard_cluster.build import ensure_built
from runyard_cluster.components import Place, api_server_basics, etcd_command
from runyard_cluster.errors import ClusterError, last_lines, timed_out
from runyard_cluster.pki import kubeconfig, make_pki, write_private
from runyard_cluster.processes import identify, read_process, write_process
from runyard_cluster.settings import Settings

NAMES = ("kube-apiserver", "etcd")  # in the order of stopping
TIMEOUT = 60.0  # seconds
TRIES = 3  # another program may take a port between its choice and its use
OWN_FILES = ("pki", "etcd", "run", "kubeconfig", *(f"{name}{end}" for name in NAMES for end in (".log", ".pid.json")))


class PortTakenError(ClusterError):
    """A chosen port was taken by another program before it could be used."""


def free_ports(count: int) -> list[int]:
    """Return different ports that nothing listens on, on loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def api_up(settings: Settings, folder: Path) -> Path:
    """Start an API server that keeps its state in `folder`, unless it runs, and return its kubeconfig."""
    config = folder / "kubeconfig"
    if running(folder):
        return config
    tools = ensure_built(settings)
    for attempt in range(1, TRIES + 1):
        api_down(folder)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _start(Place(folder, tools.bin), folder)
            return config
        except PortTakenError:
            if attempt == TRIES:
                raise
        except ClusterError:
            _stop(folder)  # the logs stay
            raise
    raise AssertionError("unreachable")


def running(folder: Path) -> bool:
    """Tell whether both processes of a folder run."""
    found = [read_process(folder / f"{name}.pid.json") for name in NAMES]
    return all(process is not None and process.alive() for process in found)


def _start(place: Place, folder: Path) -> None:
    port, client_port, peer_port = free_ports(3)
    make_pki(folder / "pki")
    _spawn(folder, "etcd", etcd_command(place, folder / "etcd", client_port=client_port, peer_port=peer_port))
    _spawn(folder, "kube-apiserver", api_server_command(place, folder, etcd_port=client_port, port=port))
    server = f"https://127.0.0.1:{port}"
    _wait(folder, Api(server, folder / "pki"))
    write_private(folder / "kubeconfig", kubeconfig(server, folder / "pki"))


def api_server_command(place: Place, folder: Path, *, etcd_port: int, port: int) -> list[str]:
    """Return the command line of a lone API server; pods can be made in it though nothing makes service accounts."""
    return [
        *api_server_basics(place, folder / "pki", etcd_port=etcd_port, port=port),
        f"--cert-dir={folder / 'run'}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
    ]


def _spawn(folder: Path, name: str, command: list[str]) -> None:
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    write_process(folder / f"{name}.pid.json", identify(child.pid))
    child.returncode = 0  # it outlives us: Popen needn't warn about that


def _wait(folder: Path, api: Api) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not api.ready():
        for name in reversed(NAMES):
            process = read_process(folder / f"{name}.pid.json")
            if process is None or not process.alive():
                raise _ended(name, folder / f"{name}.log")
        if time.monotonic() > deadline:
            raise timed_out("The API server's readiness", NAMES[0], folder / f"{NAMES[0]}.log", TIMEOUT)
        time.sleep(0.05)


def _ended(name: str, log: Path) -> ClusterError:
    tail = last_lines(log)
    kind = PortTakenError if "address already in use" in tail else ClusterError
    return kind(f"{name} ended while starting; its log is {log}:\n{tail}")


def api_down(folder: Path) -> None:
    """End the API server of a folder and remove its files there; nothing happens when there is none."""
    _stop(folder)
    for name in OWN_FILES:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _stop(folder: Path) -> None:
    for name in NAMES:
        if process := read_process(folder / f"{name}.pid.json"):
            process.kill()
