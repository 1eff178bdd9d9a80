"""Builds every binary of the cluster from Go modules, once for each version of their sources, into the user's cache.

Called by `cli` and `up`; calls `images` for the archives made from our own binaries. Layout of the cache:
KEY/bin and KEY/images (complete, or absent), build.lock (held while building), build.progress (where the running build
is) and build.log (what the last background build said).
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runyard_cluster.deps import found_go, go_sentence, needed_go
from runyard_cluster.errors import ClusterError, last_lines
from runyard_cluster.images import write_own_images
from runyard_cluster.recipe import LINKS, PACKAGES, cache_key, go_command, link_flags
from runyard_cluster.settings import SOURCE, Settings
from runyard_cluster.shell import run

STEP_TIMEOUT = 3600.0  # seconds; the longest step takes 10 minutes on 2 cores
PROGRESS = "build.progress"
UNUSED_SECONDS = 7 * 86400.0
HEARTBEAT = 60.0  # seconds between signs of life


@dataclass(frozen=True)
class Toolchain:
    """A complete set of binaries and of the archives made from them."""

    bin: Path
    images: Path

    def complete(self) -> bool:
        """Tell whether every binary is there."""
        return all((self.bin / name).exists() for name in (*PACKAGES, *LINKS))


def toolchain(settings: Settings) -> Toolchain:
    """Return where the binaries are or will be; nothing is built."""
    if settings.bin_override:
        return Toolchain(settings.bin_override, settings.bin_override.parent / "images")
    folder = settings.cache / cache_key()
    return Toolchain(folder / "bin", folder / "images")


def ensure_built(settings: Settings) -> Toolchain:
    """Return a complete set of binaries, building it or waiting for another build first. Raises ClusterError."""
    tools = toolchain(settings)
    if settings.bin_override:
        return _adopt(tools)
    if tools.complete():
        os.utime(tools.bin.parent)  # in use: see `_remove_unused`
        return tools
    with _build_lock(settings):
        if not tools.complete():  # another build may have made it while we waited
            _build(settings, tools)
    return tools


def _adopt(tools: Toolchain) -> Toolchain:
    for link, target in LINKS.items():
        if (tools.bin / target).exists() and not (tools.bin / link).exists():
            (tools.bin / link).symlink_to(target)
    if not tools.complete():
        absent = [name for name in PACKAGES if not (tools.bin / name).exists()]
        raise ClusterError(f"RUNYARD_CLUSTER_BIN is {tools.bin}, where these are missing: {', '.join(absent)}")
    write_own_images(tools.bin, tools.images)
    return tools


def build_in_background(settings: Settings) -> str:
    """Start a build that outlives this process, unless there is nothing to do, and return a sentence about it."""
    log = settings.cache / "build.log"
    if toolchain(settings).complete():
        return f"The binaries are built: {toolchain(settings).bin}"
    if _is_locked(settings):
        return f"A build runs already; its progress is in {log}"
    _require_go()
    with log.open("w") as output:
        command = [sys.executable, str(SOURCE), "build"]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return f"Building in the background (pid {child.pid}); its progress is in {log}"


def _require_go() -> None:
    if sentence := go_sentence(found_go(), needed_go()):
        raise ClusterError(sentence)


def _build(settings: Settings, tools: Toolchain) -> None:
    """Build everything into a folder of its own and move it in place when it is complete."""
    _require_go()
    for leftover in settings.cache.glob("*.partial"):  # of builds that were ended; the lock is ours
        shutil.rmtree(leftover, ignore_errors=True)
    partial = tools.bin.parent.with_name(tools.bin.parent.name + ".partial")
    (partial / "bin").mkdir(parents=True)
    started = time.monotonic()
    _progress(
        settings, f"building {len(PACKAGES)} binaries into {tools.bin} (about 11 minutes on 2 cores the first time)"
    )
    environment = os.environ | {"CGO_ENABLED": "0"}
    flags = link_flags(_kubernetes_version(environment))
    for number, (name, package) in enumerate(PACKAGES.items(), 1):
        label = f"[{number}/{len(PACKAGES)}] {name}"
        _step(
            settings,
            label,
            go_command(name, package, partial / "bin", flags),
            environment | {"GOBIN": str(partial / "bin")},
        )
    for link, target in LINKS.items():
        (partial / "bin" / link).symlink_to(target)
    write_own_images(partial / "bin", partial / "images")
    shutil.rmtree(tools.bin.parent, ignore_errors=True)
    partial.rename(tools.bin.parent)
    _remove_unused(settings.cache, tools.bin.parent)
    say(f"built in {_elapsed(started)}: {tools.bin}")


def _remove_unused(cache: Path, keep: Path) -> None:
    """Remove other versions that nothing has started from for some days; each takes half a gigabyte."""
    for folder in cache.iterdir():
        if folder.is_dir() and folder != keep and time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _kubernetes_version(environment: dict[str, str]) -> str:
    command = ["go", "-C", str(SOURCE), "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise ClusterError(f"Go can't read the module in {SOURCE}: {done.stderr.strip()[-600:]}")
    return done.stdout.strip()


def _step(settings: Settings, label: str, command: Sequence[str], environment: dict[str, str]) -> None:
    """Run one step, printing when it ends and a sign of life every minute before."""
    started = time.monotonic()
    (settings.cache / PROGRESS).write_text(f"{label} ...")
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        output = ""
        while child.returncode is None:
            try:
                output, _ = child.communicate(timeout=HEARTBEAT)
            except subprocess.TimeoutExpired:
                _progress(settings, f"{label} ... {_elapsed(started)}")
                if time.monotonic() - started > STEP_TIMEOUT:
                    child.kill()
                    raise ClusterError(f"Building {label} did not end within {STEP_TIMEOUT:.0f} s.") from None
    if child.returncode:
        tail = "\n".join(line for line in output.splitlines() if not line.startswith("go: downloading"))[-3000:]
        raise ClusterError(f"Building {label} failed with exit code {child.returncode}:\n{tail}")
    _progress(settings, f"{label} {_elapsed(started)}")


@contextmanager
def _build_lock(settings: Settings) -> Iterator[None]:
    """Hold the cache's lock, waiting with a message while another build has it."""
    settings.cache.mkdir(parents=True, exist_ok=True)
    with (settings.cache / "build.lock").open("a") as lock:
        started, told = time.monotonic(), -HEARTBEAT
        while not _try_lock(lock.fileno()):
            waited = time.monotonic() - started
            if waited - told >= HEARTBEAT:
                say(f"waiting for another build, which has come to:\n{last_lines(settings.cache / PROGRESS, 1)}")
                told = waited
            if waited > STEP_TIMEOUT:
                raise ClusterError(f"Another build held {settings.cache / 'build.lock'} for {waited:.0f} s.")
            time.sleep(0.5)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(settings: Settings) -> bool:
    settings.cache.mkdir(parents=True, exist_ok=True)
    with (settings.cache / "build.lock").open("a") as lock:
        return not _try_lock(lock.fileno())


def _progress(settings: Settings, message: str) -> None:
    """Print a line of progress and leave it for those who wait for this build."""
    say(message)
    (settings.cache / PROGRESS).write_text(message)


def _elapsed(since: float) -> str:
    seconds = round(time.monotonic() - since)
    return f"{seconds // 60}m{seconds % 60:02d}s"


def say(message: str) -> None:
    """Print a line of progress at once."""
    print(message, file=sys.stderr, flush=True)


def versions(bin_folder: Path) -> dict[str, str]:
    """Return component -> version, of those that can tell or are pinned here."""
    found = {name: package.rpartition("@")[2] for name, package in PACKAGES.items() if "@" in package}
    words = run([bin_folder / "containerd", "--version"], timeout=10).split()
    version = next((word for word in words if word.removeprefix("v")[:1].isdigit()), "unknown")
    return found | {"containerd": f"v{version.removeprefix('v').partition('+')[0]}"}
