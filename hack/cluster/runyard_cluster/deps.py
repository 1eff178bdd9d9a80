"""Which system packages are needed, which are missing, and how to install them. Called by `cli`, `up` and `build`."""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from runyard_cluster.errors import ClusterError
from runyard_cluster.settings import SOURCE
from runyard_cluster.shell import run

SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))


@dataclass(frozen=True)
class Package:
    """A Debian package and a file or program that shows that it is there."""

    name: str
    shown_by: str
    """A program's name, or an absolute path that may hold `*`."""
    for_nodes: bool = False
    """True: `up` can't do without it; False: other parts of the project use it."""


PACKAGES = (
    Package("runc", "runc", for_nodes=True),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge", for_nodes=True),
    Package("iptables", "iptables", for_nodes=True),
    Package("nftables", "nft", for_nodes=True),
    Package("ipset", "ipset", for_nodes=True),
    Package("conntrack", "conntrack", for_nodes=True),
    Package("ethtool", "ethtool", for_nodes=True),
    Package("socat", "socat", for_nodes=True),
    Package("iproute2", "ip", for_nodes=True),
    Package("util-linux", "nsenter", for_nodes=True),
    Package("mount", "mount", for_nodes=True),
    Package("openssl", "openssl", for_nodes=True),
    Package("procps", "ps"),
    Package("buildah", "buildah"),
    Package("debootstrap", "debootstrap"),
    Package("podman", "podman"),
    Package("netavark", "/usr/lib/podman/netavark"),
    Package("aardvark-dns", "/usr/lib/podman/aardvark-dns"),
    Package("bubblewrap", "bwrap"),
    Package("postgresql", "/usr/lib/postgresql/*/bin/postgres"),
)


def present(package: Package) -> bool:
    """Tell whether a package's program or file is on this machine."""
    if package.shown_by.startswith("/"):
        return any(Path("/").glob(package.shown_by.lstrip("/")))
    return shutil.which(package.shown_by, path=SYSTEM_PATH) is not None


def missing(packages: Iterable[Package], is_present: Callable[[Package], bool] = present) -> list[str]:
    """Return the names of the packages that are not on this machine, in order."""
    return [package.name for package in packages if not is_present(package)]


def packages_sentence(names: list[str]) -> str:
    """Return the sentence that tells what is missing and the command that brings it."""
    return f"Missing system packages; install them with: {' '.join(install_command(names))}"


def install_command(names: list[str]) -> list[str]:
    """Return the command that installs packages on Debian and its kin."""
    return ["apt-get", "install", "-y", "--no-install-recommends", *names]


def require_for_nodes() -> None:
    """Raise ClusterError when a package is missing that the nodes need."""
    if names := missing(package for package in PACKAGES if package.for_nodes):
        raise ClusterError(packages_sentence(names))


def needed_go() -> tuple[int, ...]:
    """Return the lowest Go version that builds the binaries, as go.mod states it."""
    match = re.search(r"^go (\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    return parse_go(match[1]) if match else (1, 26)


def parse_go(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as `1.26.8` or `go1.27rc1`, without what follows the digits."""
    return tuple(int(part) for part in re.findall(r"\d+", version.removeprefix("go").split("rc")[0])[:3])


def go_sentence(found: str | None, needed: tuple[int, ...]) -> str | None:
    """Return the sentence about a missing or too old Go; None when it will do. `found` is like `go1.26.8`."""
    wanted = ".".join(map(str, needed))
    if found is None:
        return f"Go {wanted} or newer is needed to build the cluster's binaries and was not found on PATH."
    if parse_go(found) < needed:
        return f"Go {wanted} or newer is needed to build the cluster's binaries; this machine has {found}."
    return None


def found_go() -> str | None:
    """Return the version of the Go on PATH, like `go1.26.8`; None without one."""
    if shutil.which("go") is None:
        return None
    match = re.search(r"\bgo\d\S*", run(["go", "version"], timeout=20))
    return match[0] if match else None


def problems() -> list[str]:
    """Return a sentence for each thing that is missing; empty when nothing is."""
    names = missing(PACKAGES)
    sentences = [packages_sentence(names)] if names else []
    go = go_sentence(found_go(), needed_go())
    return [*sentences, go] if go else sentences


def install() -> None:
    """Install the missing packages; Go is left to the user. Raises ClusterError when it can't."""
    names = missing(PACKAGES)
    if not names:
        return
    if os.geteuid():
        raise ClusterError(f"Only root can install packages. {packages_sentence(names)}")
    if shutil.which("apt-get") is None:
        raise ClusterError(f"This machine has no apt-get; install the equivalents of: {' '.join(names)}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run(["apt-get", "update"], timeout=300)
    run(install_command(names), timeout=900)
