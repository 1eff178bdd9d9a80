"""Switching NetworkPolicy enforcement (kube-router) on and off on all nodes. Called by `up` and `cli`."""

from runyard_cluster.errors import ClusterError, timed_out
from runyard_cluster.machines import MachineDir
from runyard_cluster.shell import poll

COMPONENT = "kube-router"
FIREWALL = "KUBE-ROUTER-FORWARD"  # the chain that every packet of a pod goes through
OWN_CHAINS = ("KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-")
OWN_SETS = ("KUBE-SRC-", "KUBE-DST-", "kube-router-", "inet6:KUBE-", "inet6:kube-router-")
TIMEOUT = 40.0  # seconds


def is_on(node: MachineDir) -> bool:
    """Tell whether a node is to enforce policies."""
    return not (node.path / "off" / COMPONENT).exists()


def switch_on(nodes: list[MachineDir]) -> None:
    """Enforce policies on the given nodes; returns when their firewalls are in place. Raises ClusterError."""
    for node in nodes:
        node.switch(COMPONENT, on=True)
    for node in nodes:
        if node.alive():
            wait_for_firewall(node)


def switch_off(nodes: list[MachineDir]) -> None:
    """Stop enforcing policies and remove every rule that enforced them. Raises ClusterError."""
    for node in nodes:
        node.switch(COMPONENT, on=False)
    for node in nodes:
        if node.alive():
            _wait_for_end(node)
            flush(node)


def wait_for_firewall(node: MachineDir) -> None:
    """Return when a node's firewall is in place; raises ClusterError when it isn't in time."""

    def in_place() -> bool:
        try:
            return f"-j {FIREWALL}" in _rules(node, "iptables")
        except ClusterError:  # the machine may be setting up its network
            return False

    if not poll(in_place, timeout=TIMEOUT, interval=0.2):
        raise timed_out(f"NetworkPolicy enforcement on {node.name}", COMPONENT, node.log(COMPONENT), TIMEOUT)


def _wait_for_end(node: MachineDir) -> None:
    if not poll(lambda: node.status().get(COMPONENT, {}).get("state") == "off", timeout=TIMEOUT):
        raise timed_out(f"The end of {COMPONENT} on {node.name}", COMPONENT, node.log(COMPONENT), TIMEOUT)


def flush(node: MachineDir) -> None:
    """Remove from a node's filter tables and sets what kube-router put there, and nothing else."""
    for family in ("iptables", "ip6tables"):
        kept = without_own_rules(_rules(node, family))
        node.in_network(f"{family}-restore", "--table=filter", text_in=kept)
    for name in node.in_network("ipset", "list", "-name").split():
        if name.startswith(OWN_SETS):
            node.in_network("ipset", "destroy", name)


def _rules(node: MachineDir, family: str) -> str:
    return node.in_network(f"{family}-save", "--table=filter")


def without_own_rules(saved: str) -> str:
    """Return an iptables-save text without the chains of kube-router and the rules in, to or about them."""
    return "".join(line for line in saved.splitlines(keepends=True) if not any(chain in line for chain in OWN_CHAINS))
