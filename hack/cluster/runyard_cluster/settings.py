"""Where things are and which addresses they have. Read once by `cli`; called by every other module, calls none.

Environment: RUNYARD_CLUSTER_STATE (folder of the running cluster), RUNYARD_CLUSTER_BIN (a folder of ready binaries,
instead of the built ones), XDG_CACHE_HOME.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent  # hack/cluster: Go module, manifests, this package
BRIDGE = "ry-bridge"
BRIDGE_ADDRESS = "172.30.0.1"  # the host's end
CONTROL_PLANE = "control-plane"
CONTROL_PLANE_ADDRESS = "172.30.0.2"
FIRST_NODE_ADDRESS = 10  # node1 is 172.30.0.10
API_PORT = 6443
API_SERVER = f"https://{CONTROL_PLANE_ADDRESS}:{API_PORT}"
SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
POD_CIDR = "10.244.0.0/16"
CLUSTER_DOMAIN = "cluster.local"
MAX_NODES = 9
CNI_PLUGINS = Path("/usr/lib/cni")

PAUSE_IMAGE = "runyard.dev/pause:1"
COREDNS_IMAGE = "runyard.dev/coredns:1"
VOLUME_HELPER_IMAGE = "runyard.dev/volume-helper:1"
PROBE_IMAGE = "runyard.dev/probe:1"


@dataclass(frozen=True)
class Settings:
    """The folders in use."""

    state: Path
    """What a running cluster consists of; removed by `down`."""
    cache: Path
    """Built binaries, one folder for each version of their sources."""
    bin_override: Path | None
    """A folder of ready binaries; None: the built ones."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig of the running cluster."""
        return self.state / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Certificates and keys of the running cluster."""
        return self.state / "pki"


def read_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Return the folders that the environment asks for."""
    cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runyard" / "cluster"
    override = env.get("RUNYARD_CLUSTER_BIN")
    return Settings(
        state=Path(env.get("RUNYARD_CLUSTER_STATE") or "/var/lib/runyard-cluster").absolute(),
        cache=cache.absolute(),
        bin_override=Path(override).absolute() if override else None,
    )


def node_name(index: int) -> str:
    """Return the name of node `index`, counted from 1."""
    return f"node{index}"


def node_address(index: int) -> str:
    """Return the address of node `index` on the bridge."""
    return f"172.30.0.{FIRST_NODE_ADDRESS + index - 1}"


def pod_cidr(index: int) -> str:
    """Return the pods' addresses on node `index`; fixed, so that a restarted node keeps them."""
    return f"10.244.{index}.0/24"
