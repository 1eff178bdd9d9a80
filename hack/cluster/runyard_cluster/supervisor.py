"""Pid 1 of the control plane and of each node: makes the namespaces, then keeps the machine's components running.

Started by `machines` as a process of its own (`python3 hack/cluster _machine FILE`); calls nothing but `components`.
Killing this process kills everything on the machine. What the rest of the tool sees of it are files in its folder:
off/NAME (written by others) keeps a component from running; status.json tells what runs; log/NAME.log is its output.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from runyard_cluster.components import Component, Machine

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000,
)  # fmt: skip
INTERFACE = "eth0"
GATEWAY = "172.30.0.1"
TICK = 0.05  # seconds between looks at the children and at off/
RESTART_DELAY = 0.5  # seconds after the end of a component
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
INTERFACE_TIMEOUT = 20.0  # seconds for the host to plug in the network
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/route_localnet": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}


def launch(spec: Path) -> int:
    """Enter new namespaces, start pid 1 in them, print its pid as seen from here, and return at once."""
    machine = Machine.from_json(spec.read_text())
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        print(f"unshare: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    pid = os.fork()
    if pid:
        print(pid)
        return 0
    os.setsid()
    _redirect(Path(machine.directory) / "log" / "supervisor.log")
    try:
        set_up(machine)
        Supervisor(machine).run()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"The machine can't go on: {error}", flush=True)
    os._exit(1)


def _redirect(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


def set_up(machine: Machine) -> None:
    """Make mounts, name, network and limits; raises OSError, RuntimeError or CalledProcessError."""
    _mount("--make-rprivate", "/")  # before anything else: nothing may reach the host
    _mount("-t", "proc", "proc", "/proc")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")  # empty, as after a boot
    for point, folder in machine.binds.items():
        Path(folder).mkdir(parents=True, exist_ok=True)
        _mount("--bind", folder, point)
    _mount("--make-rshared", "/")  # containers with propagation need it; /run/netns as well
    socket.sethostname(machine.name)
    _set_up_network(machine)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=20)


def _set_up_network(machine: Machine) -> None:
    deadline = time.monotonic() + INTERFACE_TIMEOUT
    while INTERFACE not in (name for _, name in socket.if_nameindex()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {INTERFACE} within {INTERFACE_TIMEOUT:.0f} s")
        time.sleep(0.01)
    batch = [
        "link set lo up",
        f"addr add {machine.address}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
        f"route add default via {GATEWAY}",
        *(f"route add {destination} via {gateway}" for destination, gateway in machine.routes.items()),
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(batch), text=True, check=True, timeout=20)
    for name, value in SYSCTLS.items():
        path = Path("/proc/sys") / name
        if path.exists():  # the bridge's appears with its kernel module
            path.write_text(value)


@dataclass
class Child:
    """A component and its process."""

    component: Component
    pid: int | None = None
    starts: int = 0
    not_before: float = 0.0
    """Monotonic time of the next start."""
    kill_at: float | None = None
    """Monotonic time of SIGKILL after SIGTERM; None: not being stopped."""


class Supervisor:
    """Starts what should run, restarts what ended, stops what is switched off, and reaps every orphan."""

    def __init__(self, machine: Machine) -> None:
        """Take the machine that this process is pid 1 of."""
        self._directory = Path(machine.directory)
        self._children = [Child(component) for component in machine.components]
        self._reported = ""

    def run(self) -> None:
        """Work until killed."""
        while True:
            self._reap()
            for child in self._children:
                self._step(child, time.monotonic())
            self._report()
            time.sleep(TICK)

    def _off(self, child: Child) -> bool:
        return (self._directory / "off" / child.component.name).exists()

    def _step(self, child: Child, now: float) -> None:
        off = self._off(child)
        if child.pid is None:
            if not off and now >= child.not_before:
                self._start(child)
        elif off and child.kill_at is None:
            os.killpg(child.pid, signal.SIGTERM)
            child.kill_at = now + GRACE
        elif child.kill_at is not None and now > child.kill_at:
            os.killpg(child.pid, signal.SIGKILL)

    def _start(self, child: Child) -> None:
        log = self._directory / "log" / f"{child.component.name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                child.component.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        process.returncode = 0  # reaped by `_reap`: keeps Popen from waiting for a pid that may be another's by then
        child.pid, child.kill_at = process.pid, None
        child.starts += 1

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for child in self._children:
                if child.pid == pid:
                    self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        stamp = time.strftime("%H:%M:%S")
        print(f"{stamp} component={child.component.name} exit_code={code} starts={child.starts}", flush=True)
        child.pid, child.kill_at, child.not_before = None, None, time.monotonic() + RESTART_DELAY

    def _report(self) -> None:
        state = {
            child.component.name: {
                "state": "running" if child.pid else "off" if self._off(child) else "restarting",
                "starts": child.starts,
            }
            for child in self._children
        }
        text = json.dumps(state)
        if text != self._reported:
            partial = self._directory / "status.partial"
            partial.write_text(text)
            partial.rename(self._directory / "status.json")
            self._reported = text
