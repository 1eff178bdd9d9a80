"""The paths of a thread search's `extract`: names with dots, places in lists in brackets. Pure; used by the route."""

import re
from collections.abc import Mapping
from typing import Any, get_args

from runyard_api.errors import Invalid
from runyard_api.wire import ThreadField

Path = tuple[str | int, ...]
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d{1,9})\]")


def paths_of(extract: Mapping[str, str]) -> dict[str, Path]:
    """Alias → path. Raises Invalid for what is no path, or doesn't begin at a field of a thread."""
    return {alias: _path(alias, text) for alias, text in extract.items()}


def extracted(view: Mapping[str, Any], paths: Mapping[str, Path]) -> dict[str, Any]:
    """Alias → what is there; None where nothing is."""
    return {alias: _at(view, path) for alias, path in paths.items()}


def _path(alias: str, text: str) -> Path:
    steps: list[str | int] = []
    reached = 0
    while reached < len(text) and (step := _STEP.match(text, reached)):
        steps.append(step[1] if step[2] is None else int(step[2]))
        reached = step.end()
    if reached < len(text) or not steps or text.startswith(".") or steps[0] not in get_args(ThreadField):
        raise Invalid(f"extract.{alias}: must be a path into a thread such as values.messages[-1].content")
    return tuple(steps)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, int):
            here = isinstance(value, list) and -len(value) <= step < len(value)
        else:
            here = isinstance(value, Mapping) and step in value
        if not here:
            return None
        value = value[step]
    return value
