"""Bringing image archives into the nodes' image stores. Called by `up` and `cli`; calls `images` and `machines`."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runyard_cluster.errors import ClusterError, timed_out
from runyard_cluster.image_names import image_names
from runyard_cluster.machines import MachineDir
from runyard_cluster.shell import poll, run, succeeds

IMPORT_TIMEOUT = 300.0  # seconds for one archive on one node
CONTAINERD_TIMEOUT = 30.0  # seconds for containerd to answer after the start of a node


def load(ctr: Path, nodes: Sequence[MachineDir], archives: Sequence[Path]) -> list[str]:
    """Import archives into every node that runs, all at once, and return the images' names.

    Raises ClusterError when an archive is none, when no node runs, or when a node doesn't list an image afterwards.
    """
    names = [name for archive in archives for name in image_names(archive)]
    running = [node for node in nodes if node.alive()]
    if not running:
        raise ClusterError("No node is running; `up` starts a cluster.")
    with ThreadPoolExecutor(len(running)) as pool:
        for result in [pool.submit(_load_into, ctr, node, archives, names) for node in running]:
            result.result()
    return names


def _load_into(ctr: Path, node: MachineDir, archives: Sequence[Path], names: Sequence[str]) -> None:
    client: list[str | Path] = [ctr, "--address", node.containerd_socket(), "--namespace", "k8s.io"]
    if not poll(lambda: succeeds([*client, "version"]), timeout=CONTAINERD_TIMEOUT):
        raise timed_out(f"An answer of {node.name}", "containerd", node.log("containerd"), CONTAINERD_TIMEOUT)
    for archive in archives:
        run([*client, "images", "import", archive], timeout=IMPORT_TIMEOUT)
    _name_in_full(client, names)
    absent = sorted(set(names) - _listed(client))
    if absent:
        raise ClusterError(f"{node.name} doesn't list {', '.join(absent)} after the import.")


def _name_in_full(client: Sequence[str | Path], names: Sequence[str]) -> None:
    """Add the full name to images whose archive has a short one: only by the full one does the kubelet find them."""
    present = _listed(client)
    for name in set(names) - present:
        short = name.removeprefix("docker.io/").removeprefix("library/")
        for candidate in (short, short.removesuffix(":latest"), f"docker.io/{short.removesuffix(':latest')}"):
            if candidate in present:
                run([*client, "images", "tag", candidate, name])
                break


def _listed(client: Sequence[str | Path]) -> set[str]:
    return set(run([*client, "images", "list", "--quiet"]).split())
