"""The base image on a machine without a registry: Debian 12 by debootstrap, once per user. Called by `builders`.

The archive is named after the recipe below, so that a changed recipe makes a new one.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from runyard_images.errors import ImagesError
from runyard_images.shell import run, timed

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
DROPPED = (
    *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale"),
    *("var/cache/apt", "var/lib/apt/lists", "var/log"),
)
"""Folders whose content stays behind, as in the slim images of Debian."""
MINUTES = 15


def version() -> str:
    """Return what names the base: the suite and a hash of the recipe."""
    return f"{SUITE}-{hashlib.sha256(repr((SUITE, PACKAGES, DROPPED)).encode()).hexdigest()[:12]}"


def base_archive(cache: Path) -> Path:
    """Return the base as a plain tar of a root file system; makes it when the cache has none (about a minute)."""
    archive = cache / f"base-{version()}.tar"
    if not archive.exists():
        _refuse_without_rights()
        cache.mkdir(parents=True, exist_ok=True)
        with timed(f"base: debootstrap {SUITE}"), tempfile.TemporaryDirectory(dir=cache, prefix="root-") as folder:
            _make(Path(folder), archive)
    return archive


def _refuse_without_rights() -> None:
    if os.geteuid() != 0:
        raise ImagesError("Making the base takes root (debootstrap); run as root or name an image of yours by --from.")
    if not shutil.which("debootstrap"):
        raise ImagesError("The program debootstrap is missing; on Debian: apt-get install debootstrap")


def _make(folder: Path, archive: Path) -> None:
    root = folder / "rootfs"
    command: list[str | Path] = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root]
    run(command, timeout=MINUTES * 60)
    for name in DROPPED:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    for device_folder in ("dev", "proc", "sys"):  # a build or a runtime mounts its own
        shutil.rmtree(root / device_folder, ignore_errors=True)
        (root / device_folder).mkdir()
    # The machine's own resolver settings don't belong in an image.
    (root / "etc" / "resolv.conf").unlink(missing_ok=True)
    (root / "etc" / "hostname").unlink(missing_ok=True)
    partial = archive.with_suffix(".partial")
    run(["tar", "--numeric-owner", "--sort=name", "-C", root, "-cf", partial, "."], timeout=300)
    partial.rename(archive)
