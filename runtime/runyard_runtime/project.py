"""Reads a LangGraph project: langgraph.json, its graphs, local dependencies and env, as LangGraph's own CLI does.

Called once at the start (`graphs.load_graphs`). `read_project` only reads; `apply_project` sets sys.path and env.
"""

import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from dotenv import dotenv_values

_READ = {"graphs", "dependencies", "env"}
_IMAGE = {"$schema", "python_version", "node_version", "pip_config_file", "pip_installer", "dockerfile_lines"}
_IMAGE |= {"base_image", "image_distro", "api_version", "keep_pkg_tools", "source", "building", "_INTERNAL_docker_tag"}


class ProjectError(Exception):
    """The project can't be served. `reason` is NoGraphs, BadProject or ImportFailed, the text one sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Project:
    """A project as read. `graphs` maps id → "path.py:variable" or "pkg.module:variable"; `paths` go on sys.path, in
    order; `env` holds variables to set unless the process has them; `ignored` are keys of the file without effect."""

    root: Path
    graphs: Mapping[str, str]
    paths: tuple[Path, ...]
    env: Mapping[str, str]
    ignored: tuple[str, ...] = ()


def read_project(config: Path, graphs: Mapping[str, str] | None = None) -> Project:
    """Reads the langgraph.json at `config`; `graphs`, if given, replaces the file's, and then the file may be absent.

    Raises ProjectError: NoGraphs when there is nothing to serve, BadProject when the file can't be understood.
    """
    if not config.is_file():
        if not graphs:
            raise ProjectError("NoGraphs", f"there is no {config}, and no graphs are given otherwise")
        return Project(config.parent.resolve(), dict(graphs), (config.parent.resolve(),), {})
    raw = _json_object(config)
    root = config.parent.resolve()
    found = dict(graphs) if graphs else _graphs(raw.get("graphs"), config)
    ignored = tuple(sorted(k for k, v in raw.items() if k not in _READ | _IMAGE and v))
    return Project(
        root, found, _paths(root, raw.get("dependencies"), config), _env(root, raw.get("env"), config), ignored
    )


def apply_project(project: Project, environ: MutableMapping[str, str]) -> None:
    """Puts the project's folders on sys.path, behind what is there as an installed package would be, and sets its env.

    Variables that the process already has win: in a cluster they come from the Agent, and the file is the default.
    """
    for path in project.paths:
        if str(path) not in sys.path:
            sys.path.append(str(path))
    for name, value in project.env.items():
        environ.setdefault(name, value)


def _json_object(config: Path) -> dict[str, Any]:
    try:
        raw = orjson.loads(config.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ProjectError("BadProject", f"{config} is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ProjectError("BadProject", f"{config} must hold a JSON object")
    return raw


def _graphs(raw: object, config: Path) -> dict[str, str]:
    if not raw:
        raise ProjectError("NoGraphs", f"{config} names no graphs")
    if not isinstance(raw, dict):
        raise ProjectError("BadProject", f"graphs in {config} must map graph ids to path:variable")
    return {graph_id: _graph_path(graph_id, entry, config) for graph_id, entry in raw.items()}


def _graph_path(graph_id: str, entry: object, config: Path) -> str:
    path = entry.get("path") if isinstance(entry, dict) else entry
    if not isinstance(path, str) or not all(path.rpartition(":")[::2]):
        raise ProjectError(
            "BadProject", f"graph {graph_id!r} in {config} must be path:variable, or an object with such a path"
        )
    return path


def _paths(root: Path, raw: object, config: Path) -> tuple[Path, ...]:
    if raw is None:
        raw = ["."]
    if not isinstance(raw, list) or not all(isinstance(d, str) for d in raw):
        raise ProjectError("BadProject", f"dependencies in {config} must be a list of texts")
    paths = [root]
    for dependency in raw:
        if dependency.startswith("."):
            paths += _folder_paths(root / dependency, dependency, config)
    return tuple(dict.fromkeys(paths))


def _folder_paths(folder: Path, named: str, config: Path) -> list[Path]:
    """Where the modules of a local dependency are found, by the layouts that the CLI tells apart."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise ProjectError("BadProject", f"dependency {named!r} in {config} is no folder")
    if (folder / "pyproject.toml").exists() or (folder / "setup.py").exists():
        return [folder / "src", folder] if (folder / "src").is_dir() else [folder]
    if (folder / "__init__.py").exists():
        return [folder.parent, folder]
    return [folder]


def _env(root: Path, raw: object, config: Path) -> dict[str, str]:
    if not raw:
        return {}
    if isinstance(raw, dict):
        return {str(name): str(value) for name, value in raw.items()}
    if not isinstance(raw, str):
        raise ProjectError("BadProject", f"env in {config} must be a file's path or a map")
    # A file that isn't there is no error: images are built without it, and the cluster sets the variables.
    path = root / raw
    return {k: v for k, v in dotenv_values(path).items() if v is not None} if path.is_file() else {}
