"""Which images there are, what they are called and where things lie. Called by every module, calls `errors`.

Environment: RUNYARD_IMAGES_CACHE or XDG_CACHE_HOME (the base and the builder's storage).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runyard_images.errors import ImagesError

ROOT = Path(__file__).resolve().parents[3]
BASE = "docker.io/library/debian:bookworm-slim"
IMAGES = ("operator", "gateway", "runtime", "postgres", "hello")
"""In the order they are built: hello is FROM runtime."""
PREFIX = "docker.io/runyard/runyard-"


@dataclass(frozen=True)
class Settings:
    """What one call of the tool works with."""

    prefix: str
    """What stands before an image's short name, e.g. `docker.io/runyard/runyard-`."""
    tag: str
    out: Path
    """Folder of the archives."""
    cache: Path
    """The base and buildah's storage; apart from the machine's own images."""
    base: str | None
    """An image of the builder to use as the base; None: found or made."""

    def reference(self, name: str) -> str:
        """Return the full name of one of our images."""
        return f"{self.prefix}{name}:{self.tag}"

    def archive(self, name: str) -> Path:
        """Return where the archive of an image lies."""
        return self.out / f"{name}.tar"


def default_tag() -> str:
    """Return the chart's appVersion, which is the tag the chart asks for."""
    chart = ROOT / "charts" / "runyard" / "Chart.yaml"
    found = re.search(r'^appVersion:\s*"?([^"\s]+)"?\s*$', chart.read_text(), re.MULTILINE)
    if not found:
        raise ImagesError(f"{chart} has no appVersion; it is the images' tag.")
    return found.group(1)


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the base and the builder's storage."""
    if own := env.get("RUNYARD_IMAGES_CACHE"):
        return Path(own).absolute()
    return (Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runyard" / "images").absolute()


def chosen(names: list[str]) -> list[str]:
    """Return the images to build in their order, runtime before hello; all when none is named."""
    if unknown := [name for name in names if name not in IMAGES]:
        raise ImagesError(f"There is no image {unknown[0]}; the images are {', '.join(IMAGES)}.")
    return [name for name in IMAGES if not names or name in names]
