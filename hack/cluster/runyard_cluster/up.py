"""Starting and removing a whole cluster. Called by `cli`; calls nearly everything else."""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from string import Template

from runyard_cluster import cgroups, components, configs, deps, machines, network, policy
from runyard_cluster.api import Api
from runyard_cluster.build import Toolchain, ensure_built, say
from runyard_cluster.components import Place
from runyard_cluster.errors import ClusterError, timed_out
from runyard_cluster.images import archive_path, write_own_images
from runyard_cluster.load import load
from runyard_cluster.machines import MachineDir, Marker
from runyard_cluster.pki import kubeconfig, make_pki, write_private
from runyard_cluster.settings import API_SERVER, MAX_NODES, SOURCE, Settings
from runyard_cluster.shell import poll, run
from runyard_cluster.waits import (
    ready_since,
    wait_for_dns,
    wait_for_node,
    wait_for_service_accounts,
    wait_for_service_route,
)

API_TIMEOUT = 60.0  # seconds
LOCK_TIMEOUT = 300.0  # seconds
LOCK = Path("/run/runyard-cluster.lock")  # one for all state folders: they share the bridge
SYSTEM_ARCHIVES = ("pause", "coredns", "volume-helper")
HOST_MOUNT_POINTS = ("/var/lib/kubelet", "/var/lib/cni")  # made empty for the machines to mount over


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Let one process at a time change the cluster; raises ClusterError when another one takes too long."""
    _require_root()
    with LOCK.open("a") as lock:

        def acquired() -> bool:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        if not acquired():
            say("waiting for another process that is changing the cluster")
            if not poll(acquired, timeout=LOCK_TIMEOUT):
                raise ClusterError(f"Another process has been changing the cluster for {LOCK_TIMEOUT:.0f} s.")
        yield


def _require_root() -> None:
    if os.geteuid():
        raise ClusterError("Only root can change the cluster: it consists of namespaces and mounts.")


def up(settings: Settings, nodes: int, *, replace: bool) -> str:
    """Bring a cluster of `nodes` nodes up, unless it is, and return a sentence about it. Raises ClusterError."""
    if not 1 <= nodes <= MAX_NODES:
        raise ClusterError(f"A cluster has 1 to {MAX_NODES} nodes, not {nodes}.")
    _require_root()
    if replace or not any(machine.alive() for machine in machines.machine_dirs(settings)):
        deps.require_for_nodes()
        ensure_built(settings)  # before the lock is taken: it may take minutes
    with changing():
        running = [machine for machine in machines.machine_dirs(settings) if machine.alive()]
        if running and not replace:
            return _keep(settings, nodes)
        tools = ensure_built(settings)
        if running or settings.state.exists():
            down(settings)
        started = time.monotonic()
        _start(settings, tools, nodes)
        return f"The cluster is up: {_count(nodes)}, {time.monotonic() - started:.1f} s."


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _keep(settings: Settings, nodes: int) -> str:
    """Return that the cluster is up already; raises ClusterError when it is another one than asked for."""
    found = machines.read_marker(settings).nodes
    advice = "`up --replace` replaces it, `down` removes it."
    if found != nodes:
        raise ClusterError(f"A cluster of {_count(found)} is up, and {_count(nodes)} asked for; {advice}")
    if not healthy(settings):
        raise ClusterError(f"The cluster that is up isn't healthy (see `status`); {advice}")
    return f"The cluster is up already: {_count(nodes)}."


def healthy(settings: Settings) -> bool:
    """Tell whether every component runs, the API server is ready and every node is Ready."""
    api = Api(API_SERVER, settings.pki)
    every = machines.machine_dirs(settings)
    if not every or not all(machine.runs() for machine in every) or not api.ready():
        return False
    try:
        return all(ready_since(api, node.name) for node in machines.node_dirs(settings))
    except ClusterError:
        return False


def _start(settings: Settings, tools: Toolchain, nodes: int) -> None:
    place = Place(settings.state, tools.bin)
    write_own_images(tools.bin, tools.images)
    settings.state.mkdir(parents=True, exist_ok=True)
    machines.marker_path(settings).write_text(json.dumps(asdict(Marker(nodes, str(tools.bin)))))
    network.make_bridge(nodes, settings.state)
    make_pki(settings.pki)
    write_private(settings.kubeconfig, kubeconfig(API_SERVER, settings.pki))
    control = machines.define(components.control_plane(place, nodes), configs.control_plane_files(place, nodes))
    machines.boot(control)
    with ThreadPoolExecutor(1) as pool:
        workers = [_boot_node(place, index, nodes) for index in range(1, nodes + 1)]
        archives = [archive_path(tools.images, name) for name in SYSTEM_ARCHIVES]
        loading = pool.submit(load, tools.bin / "ctr", workers, archives)
        _wait_for_api(settings, control)
        _create_nodes(settings, nodes)
        for machine in (control, *workers):
            switch_all_on(machine)
        run([tools.bin / "kubectl", "--kubeconfig", settings.kubeconfig, "apply", "-f", "-"], text_in=_addons(nodes))
        loading.result()
    _wait_for_all(settings, control, workers)


def _boot_node(place: Place, index: int, nodes: int) -> MachineDir:
    node = machines.define(components.node(place, index, nodes), configs.node_files(place, index))
    machines.boot(node)
    return node


def switch_all_on(machine: MachineDir) -> None:
    """Let a machine run all of its components."""
    for flag in (machine.path / "off").iterdir():
        machine.switch(flag.name, on=True)


def _wait_for_api(settings: Settings, control: MachineDir) -> None:
    if not poll(Api(API_SERVER, settings.pki).ready, timeout=API_TIMEOUT):
        raise timed_out("The API server's readiness", "kube-apiserver", control.log("kube-apiserver"), API_TIMEOUT)


def _create_nodes(settings: Settings, nodes: int) -> None:
    api = Api(API_SERVER, settings.pki)
    for index in range(1, nodes + 1):
        api.create("/api/v1/nodes", components.node_manifest(index))


def _addons(nodes: int) -> str:
    return Template((SOURCE / "addons.yaml").read_text()).substitute(replicas=min(nodes, 2))


def _wait_for_all(settings: Settings, control: MachineDir, workers: list[MachineDir]) -> None:
    api = Api(API_SERVER, settings.pki)
    for node in workers:
        wait_for_node(api, node)
    wait_for_dns(api, workers[0])
    wait_for_service_accounts(api, control)
    wait_for_service_route(control)
    policy.switch_on(workers)


def down(settings: Settings) -> None:
    """End the cluster and remove what it left on the host; nothing happens when there is none. Raises ClusterError."""
    for machine in machines.machine_dirs(settings):
        machines.kill(machine)
    if network.bridge_owner() in (None, "", str(settings.state)):  # else another cluster is up
        network.remove_bridge()
        cgroups.remove()
    _remove_state(settings)
    for point in HOST_MOUNT_POINTS:
        with contextlib.suppress(OSError):  # in use by something else, or not there
            Path(point).rmdir()


def _remove_state(settings: Settings) -> None:
    state = settings.state
    if not state.exists():
        return
    if not machines.marker_path(settings).exists() and any(state.iterdir()):
        raise ClusterError(f"{state} holds no cluster and is not empty; it stays as it is.")

    def removed() -> bool:
        shutil.rmtree(state, ignore_errors=True)  # the kernel may take a moment to let go of a killed machine's mounts
        return not state.exists()

    if not poll(removed, timeout=10):
        raise ClusterError(f"{state} could not be removed.")


def summary(settings: Settings) -> list[str]:
    """Return the shell lines that make the cluster usable."""
    return [f"export KUBECONFIG={settings.kubeconfig}", f'export PATH={machines.read_marker(settings).bin}:"$PATH"']


def start_node(settings: Settings, name: str) -> None:
    """Start a node again that was killed, and wait until it is Ready. Raises ClusterError."""
    node = machines.find_node(settings, name)
    if node.alive():
        raise ClusterError(f"{name} is running.")
    since = time.time()
    machines.kill(node)  # what is left of its cable, if its end was not our doing
    machines.boot(node)
    wait_for_node(Api(API_SERVER, settings.pki), node, since=since)
    if policy.is_on(node):
        policy.wait_for_firewall(node)


def kill_node(settings: Settings, name: str) -> None:
    """Kill a node like a power cut. Raises ClusterError when it doesn't run."""
    node = machines.find_node(settings, name)
    if not node.alive():
        raise ClusterError(f"{name} isn't running.")
    machines.kill(node)
