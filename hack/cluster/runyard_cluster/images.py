"""Image archives without a builder: one-layer OCI archives from our own binaries. Called by `build` and `up`."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runyard_cluster.errors import ClusterError
from runyard_cluster.settings import COREDNS_IMAGE, PAUSE_IMAGE, PROBE_IMAGE, VOLUME_HELPER_IMAGE

OCI = "application/vnd.oci.image"
OWN_IMAGES = {
    "pause": PAUSE_IMAGE,
    "coredns": COREDNS_IMAGE,
    "volume-helper": VOLUME_HELPER_IMAGE,
    "probe": PROBE_IMAGE,
}
"""Name of the binary, which is also the entrypoint and the archive's name -> name of the image."""
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def archive_path(images: Path, binary: str) -> Path:
    """Return where the archive of an image of our own lies."""
    return images / f"{binary}.tar"


def write_own_images(binaries: Path, images: Path) -> None:
    """Write the archive of every image of our own; one that is newer than its binary stays."""
    images.mkdir(parents=True, exist_ok=True)
    for name, reference in OWN_IMAGES.items():
        target, source = archive_path(images, name), binaries / name
        if not source.exists():
            raise ClusterError(f"The binary {source} is missing; `build` makes it.")
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            write_image(target, reference, source)


def write_image(target: Path, reference: str, binary: Path) -> None:
    """Write an OCI archive of one image that holds one static binary and runs it."""
    blobs: dict[str, bytes] = {}

    def put(data: bytes, media_type: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[digest] = data
        return {"mediaType": f"{OCI}.{media_type}", "digest": digest, "size": len(data)}

    architecture = {"architecture": GO_ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    layer = put(_layer(binary), "layer.v1.tar")
    rootfs = {"type": "layers", "diff_ids": [layer["digest"]]}
    settings = architecture | {"config": {"Entrypoint": [f"/{binary.name}"]}, "rootfs": rootfs}
    config = put(json.dumps(settings).encode(), "config.v1+json")
    body = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": [layer]}
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    manifest = put(json.dumps(body).encode(), "manifest.v1+json") | {"annotations": names, "platform": architecture}
    _write_archive(target, {"schemaVersion": 2, "manifests": [manifest]}, blobs)


def _layer(binary: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in ("etc", "tmp"):
            layer.addfile(_entry(folder, type_=tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755))
        data = binary.read_bytes()
        layer.addfile(_entry(binary.name, size=len(data), mode=0o755), io.BytesIO(data))
    return buffer.getvalue()


def _entry(name: str, *, size: int = 0, mode: int = 0o644, type_: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type = size, mode, type_
    return entry


def _write_archive(target: Path, index: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {f"blobs/{digest.replace(':', '/')}": data for digest, data in blobs.items()}
    partial = target.with_suffix(".partial")
    with tarfile.open(partial, "w") as archive:
        for name, data in files.items():
            archive.addfile(_entry(name, size=len(data)), io.BytesIO(data))
    partial.rename(target)
