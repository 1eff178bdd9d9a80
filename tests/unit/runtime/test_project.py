"""langgraph.json as LangGraph's CLI reads it: graphs, folders on the path, variables, and plain refusals."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from runyard_runtime.graphs import load_graphs
from runyard_runtime.project import Project, ProjectError, apply_project, read_project

GRAPH = """
from typing import TypedDict
from langgraph.graph import StateGraph
class State(TypedDict): x: int
def node(state): return {}
graph = StateGraph(State).add_node("n", node).set_entry_point("n")
def make(): return graph
number = 1
"""


@pytest.fixture(autouse=True)
def _clean_path() -> Iterator[None]:
    """What a test puts on the path or imports is gone after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("proj_", "runyard_graph_")):
            del sys.modules[name]


def _project(folder: Path, **content: Any) -> Project:
    (folder / "langgraph.json").write_bytes(orjson.dumps(content))
    return read_project(folder / "langgraph.json")


def _loaded(folder: Path, where: str, **content: Any) -> tuple[str, ...]:
    project = _project(folder, graphs={"g": where}, **content)
    apply_project(project, {})
    return load_graphs(project).ids


def test_graphs_are_texts_or_objects_with_a_path(tmp_path: Path) -> None:
    project = _project(tmp_path, graphs={"a": "./a.py:graph", "b": {"path": "pkg.mod:graph", "description": "x"}})
    assert project.graphs == {"a": "./a.py:graph", "b": "pkg.mod:graph"}
    assert project.root == tmp_path


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "NoGraphs"),
        ({"graphs": {}}, "NoGraphs"),
        ({"graphs": ["a"]}, "BadProject"),
        ({"graphs": {"a": "./a.py"}}, "BadProject"),
        ({"graphs": {"a": {"nothing": 1}}}, "BadProject"),
        ({"graphs": {"a": "a:b"}, "dependencies": "."}, "BadProject"),
        ({"graphs": {"a": "a:b"}, "dependencies": ["./nowhere"]}, "BadProject"),
        ({"graphs": {"a": "a:b"}, "env": 1}, "BadProject"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(tmp_path: Path, content: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProjectError) as refused:
        _project(tmp_path, **content)
    assert refused.value.reason == reason
    assert "langgraph.json" in str(refused.value)


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as refused:
        read_project(tmp_path / "langgraph.json")
    assert refused.value.reason == "NoGraphs"
    (tmp_path / "langgraph.json").write_text("{")
    with pytest.raises(ProjectError) as refused:
        read_project(tmp_path / "langgraph.json")
    assert refused.value.reason == "BadProject"


def test_graphs_given_otherwise_need_no_file(tmp_path: Path) -> None:
    project = read_project(tmp_path / "langgraph.json", {"a": "pkg.mod:graph"})
    assert (project.graphs, project.root) == ({"a": "pkg.mod:graph"}, tmp_path)


def test_local_dependencies_are_found_by_their_layout(tmp_path: Path) -> None:
    for name, files in {
        "installable": ["pyproject.toml", "src/x.py"],
        "package": ["__init__.py"],
        "plain": ["x.py"],
    }.items():
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
    dependencies = ["langchain", "./installable", "./package", "./plain"]
    project = _project(tmp_path, graphs={"a": "a:b"}, dependencies=dependencies)
    names = [str(path.relative_to(tmp_path)) for path in project.paths]
    assert names == [".", "installable/src", "installable", "package", "plain"]


def test_env_is_a_file_or_a_map_and_the_process_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('A=1\nexport B="two words"\n# c\n')
    project = _project(tmp_path, graphs={"a": "a:b"}, env=".env")
    assert project.env == {"A": "1", "B": "two words"}
    environ = {"A": "mine"}
    apply_project(project, environ)
    assert environ == {"A": "mine", "B": "two words"}
    assert _project(tmp_path, graphs={"a": "a:b"}, env={"N": 1}).env == {"N": "1"}
    assert _project(tmp_path, graphs={"a": "a:b"}, env="missing.env").env == {}


def test_keys_without_effect_are_named(tmp_path: Path) -> None:
    project = _project(
        tmp_path, graphs={"a": "a:b"}, python_version="3.11", auth={"path": "x"}, http={"app": "y"}, ui={}
    )
    assert project.ignored == ("auth", "http")


def test_a_file_is_imported_by_the_name_other_modules_use_for_it(tmp_path: Path) -> None:
    (tmp_path / "proj_a").mkdir()
    (tmp_path / "proj_a" / "__init__.py").touch()
    (tmp_path / "proj_a" / "helper.py").write_text("value = 1\n")
    (tmp_path / "proj_a" / "main.py").write_text("from .helper import value\n" + GRAPH)
    assert _loaded(tmp_path, "./proj_a/main.py:graph") == ("g",)
    assert "proj_a.main" in sys.modules


def test_a_module_path_a_factory_and_a_file_that_cannot_be_a_module(tmp_path: Path) -> None:
    (tmp_path / "proj_b.py").write_text(GRAPH)
    (tmp_path / "proj-c.py").write_text(GRAPH)
    assert _loaded(tmp_path, "proj_b:graph") == ("g",)
    assert _loaded(tmp_path, "./proj_b.py:make") == ("g",)
    assert _loaded(tmp_path, "./proj-c.py:graph") == ("g",)


def test_a_file_named_as_an_installed_module_is_still_its_own(tmp_path: Path) -> None:
    (tmp_path / "orjson.py").write_text(GRAPH)
    assert _loaded(tmp_path, "./orjson.py:graph") == ("g",)
    assert sys.modules["orjson"] is orjson


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("./proj_d.py:nothing", "AttributeError"),
        ("./proj_d.py:number", "is a int, not a graph"),
        ("./missing.py:graph", "which doesn't exist"),
        ("./agent.ts:graph", "no Python file"),
        ("proj_nowhere.mod:graph", "ModuleNotFoundError: No module named 'proj_nowhere'"),
        ("./proj_broken.py:graph", "ZeroDivisionError: division by zero"),
        ("./proj_exits.py:graph", "SystemExit: 3"),
        ("./proj_syntax.py:graph", "SyntaxError"),
        ("./proj_factory.py:make", "needs 'database'"),
    ],
)
def test_what_fails_to_import_says_its_last_line(tmp_path: Path, where: str, says: str) -> None:
    (tmp_path / "proj_d.py").write_text(GRAPH)
    (tmp_path / "proj_broken.py").write_text("1 / 0\n")
    (tmp_path / "proj_exits.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "proj_syntax.py").write_text("def\n")
    (tmp_path / "proj_factory.py").write_text("def make(config, database: str): ...\n")
    (tmp_path / "agent.ts").touch()
    with pytest.raises(ProjectError) as refused:
        _loaded(tmp_path, where)
    assert refused.value.reason == "ImportFailed"
    assert says in str(refused.value)
    assert "'g'" in str(refused.value)
    assert "\n" not in str(refused.value)
