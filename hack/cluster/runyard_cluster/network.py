"""The host's side of the cluster's network: a bridge, a cable to each machine, routes to pods and Services.

Called by `up` and `machines`. Everything here goes away with the bridge.
"""

import json
from pathlib import Path

from runyard_cluster import components, settings
from runyard_cluster.errors import ClusterError
from runyard_cluster.shell import run, succeeds


def bridge_owner() -> str | None:
    """Return the state folder of the cluster that the bridge belongs to; None: no bridge, empty: not noted on it."""
    if not succeeds(["ip", "link", "show", settings.BRIDGE]):
        return None
    found = json.loads(run(["ip", "-json", "link", "show", settings.BRIDGE]))
    return str(found[0].get("ifalias", ""))


def make_bridge(nodes: int, state: Path) -> None:
    """Make the bridge and the host's routes; raises ClusterError when it is there or the addresses are in use."""
    if (owner := bridge_owner()) is not None:
        cluster = f"the cluster in {owner}" if owner else "something else"
        raise ClusterError(f"The network device {settings.BRIDGE} belongs to {cluster}; take that down first.")
    _refuse_taken_addresses()
    succeeds(["modprobe", "br_netfilter"])  # where it is built in, there is no module
    ways = components.routes(nodes) | {settings.SERVICE_CIDR: settings.CONTROL_PLANE_ADDRESS}
    batch = [
        f"link add {settings.BRIDGE} type bridge",
        f'link set {settings.BRIDGE} alias "{state}"',
        f"addr add {settings.BRIDGE_ADDRESS}/24 dev {settings.BRIDGE}",
        f"link set {settings.BRIDGE} up",
        *(f"route add {destination} via {gateway}" for destination, gateway in ways.items()),
    ]
    run(["ip", "-batch", "-"], text_in="\n".join(batch))


def _refuse_taken_addresses() -> None:
    for network in (f"{settings.BRIDGE_ADDRESS}/24", settings.SERVICE_CIDR, settings.POD_CIDR):
        found = json.loads(run(["ip", "-json", "route", "show", "root", network]) or "[]")
        if found:
            raise ClusterError(
                f"The host has a route into {network} already, via {found[0].get('dev')}; it would clash."
            )


def plug_in(machine: str, pid: int) -> None:
    """Connect the machine with this pid 1 to the bridge."""
    cable = f"ry-{machine}"[:15]  # the kernel's limit
    run(["ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
    run(["ip", "link", "set", cable, "master", settings.BRIDGE, "up"])


def unplug(machine: str) -> None:
    """Remove what the kernel may still hold of a killed machine's connection."""
    succeeds(["ip", "link", "del", f"ry-{machine}"[:15]])


def remove_bridge() -> None:
    """Remove the bridge with all its routes; nothing happens when there is none."""
    succeeds(["ip", "link", "del", settings.BRIDGE])
