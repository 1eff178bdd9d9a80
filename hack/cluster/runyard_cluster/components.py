"""What runs in the control plane and on a node, and with which command lines. Pure: no I/O, no environment.

Called by `up` and `standalone`; read back by `supervisor`. The configuration files are in `configs`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from runyard_cluster import settings as fixed
from runyard_cluster.api import Manifest

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"  # in the node's own /run
GIVEN_TIME = "16s"  # without a sign of life, after which a node is NotReady


@dataclass(frozen=True)
class Component:
    """A program that a machine keeps running."""

    name: str
    command: list[str]
    waits: bool = False
    """True: not started with the machine, but when the API server is ready."""


@dataclass(frozen=True)
class Machine:
    """The control plane or one node: a set of namespaces with an address, mounts and components."""

    name: str
    directory: str
    address: str
    routes: dict[str, str]
    """Destination -> gateway."""
    binds: dict[str, str]
    """Mount point -> folder of this machine's own that is seen there."""
    components: list[Component]

    def to_json(self) -> str:
        """Return the machine as read by `supervisor`."""
        return json.dumps(asdict(self), indent=2)

    @staticmethod
    def from_json(text: str) -> "Machine":
        """Return what `to_json` wrote."""
        fields = json.loads(text)
        return Machine(**fields | {"components": [Component(**part) for part in fields["components"]]})


@dataclass(frozen=True)
class Place:
    """Where a cluster's files are."""

    state: Path
    bin: Path

    def node_binary(self, name: str) -> list[str]:
        """Return the start of a command line for a component of the multi-call binary."""
        return [str(self.bin / "kubenode"), name]


def routes(nodes: int, own: int = 0) -> dict[str, str]:
    """Return pod network -> gateway for every node but `own` (0: the control plane or the host, which have no pods)."""
    others = (index for index in range(1, nodes + 1) if index != own)
    return {fixed.pod_cidr(index): fixed.node_address(index) for index in others}


def control_plane(place: Place, nodes: int) -> Machine:
    """Return the machine with etcd, API server, controllers, scheduler and the Services' way in from the host."""
    directory = place.state / fixed.CONTROL_PLANE
    kubeconfig = f"--kubeconfig={place.state / 'kubeconfig'}"
    etcd = etcd_command(place, directory / "etcd", client_port=2379, peer_port=2380)
    components = [
        Component("etcd", etcd),
        Component("kube-apiserver", _api_server(place)),
        Component("kube-controller-manager", _controllers(place, kubeconfig), waits=True),
        Component(
            "kube-scheduler", [*place.node_binary("kube-scheduler"), kubeconfig, "--leader-elect=false"], waits=True
        ),
        # kube-proxy needs a node's name; whose doesn't matter to Services without node-local endpoints.
        Component("kube-proxy", proxy_command(place, directory, fixed.node_name(1)), waits=True),
        Component("local-path-provisioner", _provisioner(place, directory), waits=True),
    ]
    binds = {"/var/log": str(directory / "var-log")}
    return Machine(fixed.CONTROL_PLANE, str(directory), fixed.CONTROL_PLANE_ADDRESS, routes(nodes), binds, components)


def node(place: Place, index: int, nodes: int) -> Machine:
    """Return the machine of node `index`, counted from 1."""
    name = fixed.node_name(index)
    directory = place.state / name
    kubeconfig = f"--kubeconfig={place.state / 'kubeconfig'}"
    kubelet = [f"--config={directory / 'kubelet.json'}", kubeconfig, f"--hostname-override={name}"]
    components = [
        Component("containerd", [str(place.bin / "containerd"), "-c", str(directory / "containerd.toml")]),
        Component(
            "kubelet", [*place.node_binary("kubelet"), *kubelet, f"--node-ip={fixed.node_address(index)}"], waits=True
        ),
        Component("kube-proxy", proxy_command(place, directory, name), waits=True),
        Component("kube-router", _policy(place, kubeconfig, name), waits=True),
    ]
    # What kubelet and CNI keep at fixed places must neither be shared by nodes nor stay on the host.
    seen_at = {"/var/lib/kubelet": "kubelet", "/var/lib/cni": "cni-state", "/var/log": "var-log"}
    binds = {point: str(directory / folder) for point, folder in seen_at.items()}
    return Machine(name, str(directory), fixed.node_address(index), routes(nodes, index), binds, components)


def etcd_command(place: Place, data: Path, *, client_port: int, peer_port: int) -> list[str]:
    """Return etcd's command line: one member, on loopback, without fsync (the data needn't survive a power cut)."""
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    urls = [f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"]
    urls += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    return [*place.node_binary("etcd"), f"--data-dir={data}", *urls, "--unsafe-no-fsync", "--log-level=warn"]


def api_server_basics(place: Place, pki: Path, *, etcd_port: int, port: int) -> list[str]:
    """Return the API server's command line without what differs between a cluster and a lone API server."""
    issuer = f"https://kubernetes.default.svc.{fixed.CLUSTER_DOMAIN}"
    return [
        *place.node_binary("kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-account-issuer={issuer}",
        f"--service-cluster-ip-range={fixed.SERVICE_CIDR}",
        "--allow-privileged=true",
    ]


def _api_server(place: Place) -> list[str]:
    pki = place.state / "pki"
    return [
        *api_server_basics(place, pki, etcd_port=2379, port=fixed.API_PORT),
        f"--advertise-address={fixed.CONTROL_PLANE_ADDRESS}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki / 'admin.crt'}",
        f"--kubelet-client-key={pki / 'admin.key'}",
    ]


def _controllers(place: Place, kubeconfig: str) -> list[str]:
    pki = place.state / "pki"
    return [
        *place.node_binary("kube-controller-manager"),
        kubeconfig,
        "--leader-elect=false",
        "--kube-api-qps=200",  # the defaults make the start of the controllers take 5 s
        "--kube-api-burst=400",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--node-monitor-grace-period={GIVEN_TIME}",
        "--node-monitor-period=2s",
        f"--flex-volume-plugin-dir={place.state / fixed.CONTROL_PLANE / 'volume-plugins'}",
    ]


def proxy_command(place: Place, directory: Path, name: str) -> list[str]:
    """Return kube-proxy's command line; its configuration is `kube-proxy.json` in the machine's folder."""
    config = f"--config={directory / 'kube-proxy.json'}"
    return [*place.node_binary("kube-proxy"), config, f"--hostname-override={name}"]


def _policy(place: Place, kubeconfig: str, name: str) -> list[str]:
    off = ["--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false", "--run-firewall=true"]
    timing = ["--iptables-sync-period=1m", f"--service-cluster-ip-range={fixed.SERVICE_CIDR}"]
    return [str(place.bin / "kube-router"), *off, *timing, kubeconfig, f"--hostname-override={name}"]


def _provisioner(place: Place, directory: Path) -> list[str]:
    return [
        str(place.bin / "local-path-provisioner"),
        "start",
        f"--config={directory / 'local-path.json'}",
        f"--helper-pod-file={directory / 'helper-pod.json'}",
        f"--kubeconfig={place.state / 'kubeconfig'}",
        f"--helper-image={fixed.VOLUME_HELPER_IMAGE}",
        "--namespace=kube-system",
        "--service-account-name=default",
        "--provisioner-name=rancher.io/local-path",
    ]


def node_manifest(index: int) -> Manifest:
    """Return the Node that exists before its kubelet starts.

    So nodes start in any order and keep their pod network, and what reads the node's address needn't wait for it.
    """
    name, cidr = fixed.node_name(index), fixed.pod_cidr(index)
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    spec = {"podCIDR": cidr, "podCIDRs": [cidr]}
    status = {"addresses": [{"type": "InternalIP", "address": fixed.node_address(index)}]}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
