"""The names of the images inside an archive, as the kubelet will look them up. Called by `load`."""

import json
import tarfile
from pathlib import Path
from typing import Any

from runyard_cluster.errors import ClusterError

NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def image_names(archive: Path) -> list[str]:
    """Return the full names of the images in an OCI or docker archive; raises ClusterError when there are none."""
    if not archive.is_file():
        raise ClusterError(f"There is no file {archive}.")
    try:
        with tarfile.open(archive) as tar:
            members = set(tar.getnames())
            names = _docker_names(tar) if "manifest.json" in members else _oci_names(tar)
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise ClusterError(f"{archive} is not an image archive (OCI or docker): {reason}") from None
    if not names:
        raise ClusterError(f"No image in {archive} has a name; give it one when it is written.")
    return [full_name(name) for name in names]


def _docker_names(tar: tarfile.TarFile) -> list[str]:
    return [name for image in _json(tar, "manifest.json") for name in image.get("RepoTags") or ()]


def _oci_names(tar: tarfile.TarFile) -> list[str]:
    annotations = [manifest.get("annotations") or {} for manifest in _json(tar, "index.json")["manifests"]]
    return [name for notes in annotations if (name := next((notes[key] for key in NAME_KEYS if key in notes), None))]


def _json(tar: tarfile.TarFile, member: str) -> Any:
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member} is not a file")
    return json.load(file)


def full_name(name: str) -> str:
    """Return an image's name as the kubelet looks it up: with registry, path and tag."""
    first, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{first}/{rest}"
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
