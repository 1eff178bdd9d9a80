"""Paths into a thread: what they name, and what is none."""

from typing import Any

import pytest

from runyard_api.errors import Invalid
from runyard_gateway.extract import extracted, paths_of
from runyard_gateway.paging import total_of

THREAD: dict[str, Any] = {
    "thread_id": "t",
    "values": {"messages": [{"content": "a"}, {"content": "b"}], "grid": [[1, 2], [3]], "with-dash": {"x y": 1}},
    "metadata": {},
}

FOUND: dict[str, tuple[str, Any]] = {
    "a field": ("thread_id", "t"),
    "a whole": ("metadata", {}),
    "the last item's member": ("values.messages[-1].content", "b"),
    "the first item": ("values.messages[0]", {"content": "a"}),
    "a list in a list": ("values.grid[1][0]", 3),
    "names with other characters": ("values.with-dash.x y", 1),
    "a place beyond the end": ("values.messages[2]", None),
    "a place before the start": ("values.messages[-3].content", None),
    "a member that isn't there": ("values.nothing.deeper", None),
    "a member of a list": ("values.messages.content", None),
    "a place in an object": ("values[0]", None),
}


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_what_a_path_names(case: str) -> None:
    path, value = FOUND[case]
    assert extracted(THREAD, paths_of({"alias": path})) == {"alias": value}


@pytest.mark.parametrize(
    "text", ["", ".", ".values", "values.", "values..a", "values[", "values[a]", "values[1", "[0]", "head.values", "x"]
)
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(Invalid, match=r"extract\.alias: must be a path"):
        paths_of({"alias": text})


@pytest.mark.parametrize(
    ("items", "limit", "offset", "total"),
    [(0, 10, 0, 0), (3, 10, 0, 3), (3, 10, 20, 23), (10, 10, 0, None), (0, 10, 20, None)],
)
def test_a_page_that_isnt_full_tells_the_total(items: int, limit: int, offset: int, total: int | None) -> None:
    assert total_of([None] * items, limit=limit, offset=offset) == total
