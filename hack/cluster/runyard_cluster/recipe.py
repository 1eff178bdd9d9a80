"""What is built, from which modules and with which flags. Called by `build`.

A change in this file, in `images` or in a Go source gives the cache a new folder: see `cache_key`.
"""

import hashlib
from pathlib import Path

from runyard_cluster.settings import SOURCE

CONTAINERD = "github.com/containerd/containerd/v2/cmd"
# Modules that pin older libraries than ours are built apart, each at the versions of its own go.mod.
KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0"
LOCAL_PATH = "github.com/rancher/local-path-provisioner@v0.0.30"
PACKAGES = {
    "pause": "./cmd/pause",
    "probe": "./cmd/probe",
    "volume-helper": "./cmd/volume-helper",
    "kubenode": "./cmd/kubenode",
    "coredns": "./cmd/coredns",
    "containerd": f"{CONTAINERD}/containerd",
    "containerd-shim-runc-v2": f"{CONTAINERD}/containerd-shim-runc-v2",
    "ctr": f"{CONTAINERD}/ctr",
    "helm": "helm.sh/helm/v4/cmd/helm",
    "kube-router": KUBE_ROUTER,
    "local-path-provisioner": LOCAL_PATH,
}
"""Name of the binary -> package in our module, or package@version."""
LINKS = {"kubectl": "kubenode"}
TAGS = "no_btrfs no_devmapper no_zfs"  # snapshotters that nothing here uses


def cache_key(source: Path = SOURCE) -> str:
    """Return the name of the cache folder: it changes with the sources, the modules and the recipe."""
    package = source / "runyard_cluster"
    files = [source / "go.mod", source / "go.sum", *sorted((source / "cmd").rglob("*.go"))]
    digest = hashlib.sha256()
    for file in (*files, package / "recipe.py", package / "images.py"):
        digest.update(f"{file.relative_to(source)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def link_flags(version: str) -> str:
    """Return the linker's flags that make the components report the Kubernetes version of go.mod, like v1.37.2."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())])


def go_command(name: str, package: str, target: Path, flags: str) -> list[str]:
    """Return the command that builds one of PACKAGES into `target` (the environment's GOBIN, for package@version)."""
    go = ["nice", "-n", "15", "go"]
    if "@" in package:  # go install names the binary after the last part of the path, which is what we call it
        return [*go, "install", "-trimpath", "-ldflags", "-s -w", package]
    options = ["-trimpath", "-tags", TAGS, "-ldflags", flags, "-o", str(target / name)]
    return [*go, "-C", str(SOURCE), "build", *options, package]
