"""The configuration files of the control plane and the nodes. Pure: no I/O, no environment. Called by `up`."""

import json
from pathlib import Path
from typing import Any

from runyard_cluster import settings as fixed
from runyard_cluster.api import Manifest
from runyard_cluster.components import CONTAINERD_SOCKET, Place


def control_plane_files(place: Place, nodes: int) -> dict[str, str]:
    """Return file name -> content for the control plane's folder."""
    folders = [
        {"node": fixed.node_name(index), "paths": [str(place.state / fixed.node_name(index) / "volumes")]}
        for index in range(1, nodes + 1)
    ]
    local_path = {"nodePathMap": folders, "setupCommand": "/volume-helper", "teardownCommand": "/volume-helper"}
    container = {"name": "helper-pod", "image": fixed.VOLUME_HELPER_IMAGE, "imagePullPolicy": "Never"}
    helper = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "volume"}, "spec": {"containers": [container]}}
    return {
        "local-path.json": json.dumps(local_path),
        "helper-pod.json": json.dumps(helper),
        "kube-proxy.json": json.dumps(proxy_config(place)),
    }


def node_files(place: Place, index: int) -> dict[str, str]:
    """Return file name -> content for a node's folder."""
    return {
        "kubelet.json": json.dumps(kubelet_config(place, fixed.node_name(index)), indent=2),
        "kube-proxy.json": json.dumps(proxy_config(place)),
        "containerd.toml": containerd_config(place, place.state / fixed.node_name(index)),
        "cni/10-bridge.conflist": json.dumps(cni_config(fixed.pod_cidr(index))),
    }


def kubelet_config(place: Place, name: str) -> Manifest:
    """Return the KubeletConfiguration of a node."""
    authentication = {
        "anonymous": {"enabled": False},
        "x509": {"clientCAFile": str(place.state / "pki" / "ca.crt")},
        "webhook": {"enabled": True},
    }
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/runyard/{name}",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "authentication": authentication,
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [fixed.DNS_SERVICE],
        "clusterDomain": fixed.CLUSTER_DOMAIN,
        "resolvConf": "/dev/null",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # The disk and its images are shared with the host: the default thresholds would taint the node.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "failSwapOn": False,
        "maxPods": 200,
        "seccompDefault": True,
        "podPidsLimit": 1024,
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 12,
    }


def proxy_config(place: Place) -> Manifest:
    """Return the KubeProxyConfiguration. What comes from outside the pods' network is masqueraded: the host too."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": fixed.POD_CIDR,
        "clientConnection": {"kubeconfig": str(place.state / "kubeconfig")},
        "conntrack": {"maxPerCore": 0, "min": 0},
        "nftables": {"minSyncPeriod": "100ms"},
    }


def cni_config(subnet: str) -> dict[str, Any]:
    """Return the pods' network of one node. Leases lie in /run: no pod survives a restart of the node."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-leases",
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "runyard", "plugins": [bridge, ports]}


def containerd_config(place: Place, directory: Path) -> str:
    """Return containerd's configuration.

    Containers may not lower oom_score_adj: hosts that are virtual machines or containers may lack CAP_SYS_RESOURCE.
    """
    return f"""version = 3
root = "{directory / "containerd"}"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory / "opt"}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{fixed.PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{fixed.CNI_PLUGINS}"]
  conf_dir = "{directory / "cni"}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "{place.bin / "containerd-shim-runc-v2"}"
"""
