"""The cgroup folders that the nodes' pods live in: /runyard/NODE, below every controller. Called by `machines`."""

import contextlib
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
TREE = "runyard"
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
DELEGATED = ("cpu", "cpuset", "io", "memory", "pids")


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
        for controller in DELEGATED:
            with contextlib.suppress(OSError):  # not in this kernel: the kubelet tells if it needs it
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(node: str = "", *, root: Path = ROOT, timeout: float = 5) -> None:
    """Remove a node's folders, or all nodes', once the kernel has let go of their processes; `timeout` in seconds.

    A node that starts again must not find the folders of pods that were killed: its kubelet spends seconds on each.
    """
    deadline = time.monotonic() + timeout
    candidates = [*root.glob(f"*/{TREE}/{node}"), root / TREE / node]
    while trees := [tree for tree in candidates if tree.is_dir()]:
        for tree in trees:
            _remove_tree(tree)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _remove_tree(tree: Path) -> None:
    """Remove a folder and those below it as far as they are empty of processes; their files can't be removed."""
    below = sorted((path for path in tree.rglob("*") if path.is_dir()), reverse=True)
    for folder in (*below, tree):
        with contextlib.suppress(OSError):
            folder.rmdir()
