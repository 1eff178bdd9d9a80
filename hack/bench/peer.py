"""The peer: `langgraph dev` with the same graphs, in a virtual environment of its own that is made once and kept.

A measuring tool: nothing of Runyard imports it. Used by __main__.py.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.bench.bare import GRAPHS

VERSION = "0.4.40"
_START_SECONDS = 90
_QUIET = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LOG_LEVEL": "WARNING",
}


class NoPeer(Exception):
    """`langgraph dev` can't be installed or doesn't start; the message says why."""


def program(env: dict[str, str] | None = None) -> Path:
    """The peer's `langgraph`, installed in the cache folder if it isn't there yet. Raises NoPeer."""
    cache = (env or dict(os.environ)).get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(cache) / "runyard" / "bench" / f"peer-{VERSION}"
    found = folder / "bin" / "langgraph"
    if found.exists():
        return found
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, timeout=120)
        install = [str(folder / "bin" / "pip"), "install", "--quiet", f"langgraph-cli[inmem]=={VERSION}"]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
    except subprocess.CalledProcessError as error:
        raise NoPeer(error.stderr.decode(errors="replace").strip().splitlines()[-1]) from error
    except subprocess.TimeoutExpired as error:
        raise NoPeer(f"its installation took longer than {error.timeout:.0f} s") from error
    return found


@contextmanager
def serving(folder: Path, *, jobs: int) -> Iterator[str]:
    """The URL of a `langgraph dev` that executes `jobs` runs at once; `folder` takes its files. Raises NoPeer."""
    graphs = json.loads((GRAPHS / "langgraph.json").read_text())["graphs"]
    config = {"dependencies": [str(GRAPHS)], "graphs": {name: str(GRAPHS / path) for name, path in graphs.items()}}
    (folder / "langgraph.json").write_text(json.dumps(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program()), "dev", "--no-browser", "--no-reload", "--port", str(port)]
    command += ["--n-jobs-per-worker", str(jobs)]
    with (folder / "peer.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **_QUIET}, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, folder / "peer.log")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/ok", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise NoPeer(f"it doesn't answer: {log.read_text(errors='replace')[-300:]}")
