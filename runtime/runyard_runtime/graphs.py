"""The graphs a runtime serves: imported once from the project, and made ready for one use (a run, a read, an update).

Called by `runtime.py` at the start and by `execution.py`, `threads.py` and the schemas route on the graph loop. User
code runs here: module imports and graph factories.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore

from runyard_api.errors import NotFound
from runyard_runtime.factories import Access, Factory, enter_graph, factory_of
from runyard_runtime.project import Project, ProjectError

AnyGraph = Pregel[Any, Any, Any, Any]


@dataclass(frozen=True)
class Use:
    """What a graph is opened for. `config` is what a factory sees; `context` only reaches it when a run is executed."""

    access: Access
    config: RunnableConfig
    store: BaseStore
    context: dict[str, Any] | None = None


class Graphs:
    """Graph id → compiled graph or factory."""

    def __init__(self, loaded: Mapping[str, AnyGraph | Factory]) -> None:
        self._loaded = dict(loaded)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._loaded)

    @asynccontextmanager
    async def open(self, graph_id: str, use: Use) -> AsyncIterator[AnyGraph]:
        """The graph for one use; what its factory opened is closed on leaving.

        Raises NotFound, and whatever a factory raises.
        """
        loaded = self._loaded.get(graph_id)
        if loaded is None:
            raise NotFound(f"Graph '{graph_id}' not found. Expected one of {sorted(self._loaded)}.")
        if isinstance(loaded, Pregel):
            yield loaded
            return
        async with enter_graph(loaded, use.access, config=use.config, store=use.store, context=use.context) as made:
            yield compiled(graph_id, made)


def load_graphs(project: Project) -> Graphs:
    """Imports every graph of the project. Raises ProjectError ImportFailed with the last line of what went wrong."""
    return Graphs({graph_id: _load(graph_id, where, project.root) for graph_id, where in project.graphs.items()})


def compiled(graph_id: str, value: object) -> AnyGraph:
    """A compiled graph from a compiled graph or a builder. Raises ProjectError for anything else."""
    if isinstance(value, Pregel):
        return value
    if isinstance(value, StateGraph):
        return cast(AnyGraph, value.compile())
    raise ProjectError(
        "ImportFailed", f"graph {graph_id!r} is a {type(value).__name__}, not a graph or a graph factory"
    )


def _load(graph_id: str, where: str, root: Path) -> AnyGraph | Factory:
    path, _, variable = where.rpartition(":")
    try:
        module = _module(graph_id, path, root)
        value = getattr(module, variable)
    except ProjectError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ProjectError("ImportFailed", f"graph {graph_id!r} ({where}): {_last_line(error)}") from error
    if isinstance(value, Pregel | StateGraph):
        return compiled(graph_id, value)
    if callable(value):
        return factory_of(graph_id, value)
    return compiled(graph_id, value)


def _module(graph_id: str, path: str, root: Path) -> ModuleType:
    if "/" not in path and not path.endswith(".py"):
        return importlib.import_module(path)
    file = (root / path).resolve()
    if file.suffix != ".py":
        raise ProjectError("ImportFailed", f"graph {graph_id!r} is in {path}, which is no Python file")
    if not file.is_file():
        raise ProjectError("ImportFailed", f"graph {graph_id!r} is in {path}, which doesn't exist")
    name = _dotted_name(file)
    return importlib.import_module(name) if name else _from_file(graph_id, file)


def _dotted_name(file: Path) -> str | None:
    """The name by which the file is importable, or None.

    Importing it by that name keeps one module per file, lets relative imports work, and gives its classes the name that
    checkpoints store.
    """
    folders = sorted({Path(p).resolve() for p in sys.path if p}, key=lambda p: -len(p.parts))
    for folder in folders:
        if not file.is_relative_to(folder):
            continue
        parts = file.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and all(p.isidentifier() for p in parts) and _finds(".".join(parts), file):
            return ".".join(parts)
    return None


def _finds(name: str, file: Path) -> bool:
    """Whether importing `name` loads `file`. Looks at each parent's search path without importing it."""
    search: list[str] | None = None
    *parents, last = name.split(".")
    for parent in parents:
        spec = importlib.machinery.PathFinder.find_spec(parent, search)
        if spec is None or spec.submodule_search_locations is None:
            return False
        search = list(spec.submodule_search_locations)
    spec = importlib.machinery.PathFinder.find_spec(last, search)
    loaded = sys.modules.get(name)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "/").resolve() != file:
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file


def _from_file(graph_id: str, file: Path) -> ModuleType:
    name = f"runyard_graph_{graph_id}_{file.stem}".replace("-", "_").replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ProjectError("ImportFailed", f"graph {graph_id!r} is in {file.name}, which can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: classes in it look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
