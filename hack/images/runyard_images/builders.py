"""The two builders, buildah and docker, behind one small interface. Called by `cli`; calls `base` and `hostconfig`.

Neither fetches an image: the base is the one named by --from, the one the engine holds, or one made by debootstrap.
"""

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runyard_images.base import base_archive, version
from runyard_images.errors import ImagesError
from runyard_images.hostconfig import write_secrets
from runyard_images.settings import BASE
from runyard_images.shell import run, succeeds, timed

BUILD_SECONDS = 1800
LOCAL_BASE = f"localhost/runyard-base:{version()}"
"""The base made here; another recipe has another name, so that an old base is never taken for it."""


@dataclass(frozen=True)
class Build:
    """One image to build."""

    reference: str
    """Its full name."""
    dockerfile: Path
    context: Path
    args: dict[str, str] = field(default_factory=dict)


class Builder(ABC):
    """Builds images and writes archives of them."""

    @abstractmethod
    def prepare(self, base: str | None) -> None:
        """Make sure that there is a base; `base` names an image of the engine, None finds or makes one."""

    @abstractmethod
    def image_id(self, reference: str) -> str:
        """Return an image's id; "" when there is no such image."""

    @abstractmethod
    def build(self, build: Build) -> None:
        """Build one image from the base and cached layers; what the builder says goes to the terminal."""

    @abstractmethod
    def save(self, reference: str, archive: Path) -> None:
        """Write an archive of one image for `hack/cluster load`."""

    @abstractmethod
    def clean(self) -> None:
        """Remove the images and layers that this tool made."""


class Buildah(Builder):
    """buildah with a storage of its own, so that our base never stands for Debian's in the machine's images."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        driver = os.environ.get("STORAGE_DRIVER") or ("overlay" if _overlay_works(cache) else "vfs")
        self.storage = cache / f"storage-{driver}"
        runroot = Path("/run" if os.geteuid() == 0 else tempfile.gettempdir()) / f"runyard-images-{os.geteuid()}"
        self.command = ["buildah", "--root", str(self.storage), "--runroot", str(runroot), "--storage-driver", driver]

    def prepare(self, base: str | None) -> None:
        if base and base != BASE:
            if not self.image_id(base):
                raise ImagesError(
                    f"buildah has no image {base} in {self.storage}; load one by `buildah pull` with --root."
                )
            run([*self.command, "tag", base, BASE], timeout=60)
        else:
            if not self.image_id(LOCAL_BASE):
                self._import_base()
            run([*self.command, "tag", LOCAL_BASE, BASE], timeout=60)

    def _import_base(self) -> None:
        archive = base_archive(self.cache)
        with timed("base: import"):
            container = run([*self.command, "from", "scratch"], timeout=60).strip()
            run([*self.command, "add", "--quiet", container, archive, "/"], timeout=300)
            run([*self.command, "config", "--cmd", "bash", container], timeout=60)
            run([*self.command, "commit", "--quiet", "--rm", container, LOCAL_BASE], timeout=600)

    def image_id(self, reference: str) -> str:
        return run(
            [*self.command, "images", "--quiet", "--no-trunc", "--filter", f"reference={reference}"], timeout=60
        ).strip()

    def build(self, build: Build) -> None:
        with tempfile.TemporaryDirectory(prefix="runyard-images-") as folder:
            secrets = _secret_options(Path(folder))
            options = [
                "--pull-never",
                "--isolation",
                "chroot",
                "--layers",
                "--format",
                "oci",
                *secrets,
                *_options(build),
            ]
            run([*self.command, "build", *options, build.context], timeout=BUILD_SECONDS, show=True)

    def save(self, reference: str, archive: Path) -> None:
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)  # buildah would add to it
        # Docker's format, as `docker save` writes it: its layers are plain, and gzip would take most of a build's time.
        run([*self.command, "push", "--quiet", reference, f"docker-archive:{partial}:{reference}"], timeout=600)
        partial.rename(archive)

    def clean(self) -> None:
        run([*self.command, "rmi", "--all", "--force"], timeout=300)


class Docker(Builder):
    """An answering docker engine with BuildKit. Our base keeps a name of its own and stands in for the FROM."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.base = BASE

    def prepare(self, base: str | None) -> None:
        wanted = base or BASE
        if self.image_id(wanted):
            self.base = wanted
        elif base:
            raise ImagesError(f"docker has no image {base}; pull or load it first.")
        elif os.geteuid() != 0 or not shutil.which("debootstrap"):
            raise ImagesError(f"docker has no image {BASE}; run `docker pull {BASE}`, or name another by --from.")
        else:
            self.base = LOCAL_BASE
            if not self.image_id(LOCAL_BASE):
                run(["docker", "import", base_archive(self.cache), LOCAL_BASE], timeout=600)

    def image_id(self, reference: str) -> str:
        return run(["docker", "images", "--quiet", "--no-trunc", reference], timeout=60).strip()

    def build(self, build: Build) -> None:
        with tempfile.TemporaryDirectory(prefix="runyard-images-") as folder:
            secrets = _secret_options(Path(folder))
            other = [] if self.base == BASE else ["--build-context", f"{BASE}=docker-image://{self.base}"]
            command = ["docker", "buildx", "build", "--load", *secrets, *other, *_options(build), str(build.context)]
            run(command, timeout=BUILD_SECONDS, show=True)

    def save(self, reference: str, archive: Path) -> None:
        partial = archive.with_suffix(".partial")
        run(["docker", "save", "--output", partial, reference], timeout=600)
        partial.rename(archive)

    def clean(self) -> None:
        run(["docker", "image", "rm", "--force", LOCAL_BASE], timeout=300)


def choose_builder(name: str, cache: Path) -> Builder:
    """Return the builder asked for; `auto`: buildah where it is installed, else docker where an engine answers."""
    if name == "buildah" or (name == "auto" and shutil.which("buildah")):
        return Buildah(cache)
    if name == "docker" or succeeds(["docker", "info"]):
        if not succeeds(["docker", "buildx", "version"]):
            raise ImagesError("docker needs its buildx plugin to build these images; on Debian: docker-buildx-plugin")
        return Docker(cache)
    raise ImagesError("Nothing can build images here: install buildah (apt-get install buildah) or start docker.")


def _overlay_works(cache: Path) -> bool:
    probe = cache / "storage-probe"
    command = ["buildah", "--root", str(probe), "--runroot", str(probe / "run"), "--storage-driver", "overlay", "info"]
    works = (cache / "storage-overlay").exists() or succeeds(command)
    shutil.rmtree(probe, ignore_errors=True)
    return works


def _secret_options(folder: Path) -> list[str]:
    return [f"--secret=id={name},src={path}" for name, path in write_secrets(folder).items()]


def _options(build: Build) -> Sequence[str]:
    args = [f"--build-arg={name}={value}" for name, value in build.args.items()]
    return ["--file", str(build.dockerfile), "--tag", build.reference, *args]
