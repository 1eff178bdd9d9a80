"""The cgroup folders that the nodes' pods live in: /runyard/NODE, below every controller. Called by `machines`."""

import contextlib
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
TREE = "runyard"
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
DELEGATED = "+cpu +cpuset +io +memory +pids"


def make(node: str, root: Path = ROOT) -> None:
    """Make a node's folders, ready for a kubelet that manages them itself (cgroupfs driver)."""
    if (root / "cgroup.controllers").exists():
        _make_unified(node, root)
        return
    for controller in CONTROLLERS:
        if (root / controller).is_dir():
            (root / controller / TREE / node).mkdir(parents=True, exist_ok=True)
    cpuset = root / "cpuset"
    for folder in (cpuset / TREE, cpuset / TREE / node):
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new folder, and then no process may enter it
            if (folder / file).exists():
                (folder / file).write_text((cpuset / file).read_text())


def _make_unified(node: str, root: Path) -> None:
    (root / TREE / node).mkdir(parents=True, exist_ok=True)
    for folder in (root, root / TREE):
        (folder / "cgroup.subtree_control").write_text(DELEGATED)


def remove(root: Path = ROOT, timeout: float = 5) -> None:
    """Remove all nodes' folders, once the kernel has let go of their processes; `timeout` in seconds."""
    deadline = time.monotonic() + timeout
    while trees := [tree for tree in (*root.glob(f"*/{TREE}"), root / TREE) if tree.is_dir()]:
        for tree in trees:
            for folder in sorted((path for path in tree.rglob("*") if path.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                tree.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
