"""`runyard doctor`: what `runyard dev` needs, one line each. Called by `main`; it changes nothing.

Each check gives a sentence; one that fails says what to do.
"""

import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.text import Text

from runyard_cli.embedded.options import Options
from runyard_runtime.project import ProjectError, read_project

LEAST_PYTHON = (3, 11)
EXACT = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-sdk")
"""Packages of which one version fits: the runtime uses parts of them that others may lack."""


@dataclass(frozen=True)
class Found:
    """What a check found: whether it is well, and a sentence about it."""

    well: bool
    text: str


def examine(options: Options, console: Console) -> bool:
    """Prints a line for each check; whether all are well."""
    well = True
    for name, found in findings(options):
        word = ("ok  ", "green") if found.well else ("no  ", "red")
        console.print(Text.assemble(word, (f"{name:<11}", "bold"), found.text), soft_wrap=True)
        well = well and found.well
    return well


def findings(options: Options) -> Iterator[tuple[str, Found]]:
    """What each check finds, by the name of what it looks at."""
    yield "Python", python_fits(sys.version_info[:3])
    yield "LangGraph", packages_fit(wanted_versions(metadata.requires("runyard") or []), _installed)
    yield "project", project_reads(options.config)
    yield "port", port_is_free(options.host, options.port)
    yield "state", state_is_writable(options.state.absolute())


def python_fits(version: tuple[int, ...]) -> Found:
    text = ".".join(map(str, version))
    if version >= LEAST_PYTHON:
        return Found(True, text)
    return Found(False, f"{text}; Runyard needs {'.'.join(map(str, LEAST_PYTHON))} or newer")


def wanted_versions(requirements: list[str]) -> dict[str, str]:
    """Package → version of those that are required exactly."""
    pins = (re.match(r"([a-z-]+)==([\w.]+)", line) for line in requirements)
    return {pin[1]: pin[2] for pin in pins if pin and pin[1] in EXACT}


def packages_fit(wanted: dict[str, str], installed: Callable[[str], str | None]) -> Found:
    wrong = {name: installed(name) or "not installed" for name in wanted if installed(name) != wanted[name]}
    if not wrong:
        return Found(True, ", ".join(f"{name} {version}" for name, version in wanted.items()))
    needed = " ".join(f"{name}=={wanted[name]}" for name in wrong)
    return Found(False, f"{', '.join(f'{n} {v}' for n, v in wrong.items())}; pip install {needed}")


def project_reads(config: Path) -> Found:
    try:
        project = read_project(config)
    except ProjectError as error:
        return Found(False, f"{error}; name another with --config")
    ignored = f"; without effect here: {', '.join(project.ignored)}" if project.ignored else ""
    return Found(True, f"{config} with {', '.join(project.graphs)}{ignored}")


def port_is_free(host: str, port: int) -> Found:
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family):
            return Found(True, f"{port} on {host} is free" if port else "any free one")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return Found(False, f"{port} on {host} can't be used ({reason}); choose another with --port")


def state_is_writable(state: Path) -> Found:
    """The folder, or the nearest one above it that there is, can be written to."""
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Found(True, str(state) if there == state else f"{state}, to be made")
    return Found(False, f"{state} can't be written to; choose another with --state")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
