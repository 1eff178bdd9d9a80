"""Lists as clients ask for them: a page with its headers, and the chosen fields of each item. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from runyard_gateway.body import JsonResponse


def page(items: Sequence[Any], *, total: int, offset: int) -> JsonResponse:
    """One page of a list of `total` items that begins at `offset`."""
    headers = {"X-Pagination-Total": str(total)}
    reached = offset + len(items)
    if items and reached < total:
        headers["X-Pagination-Next"] = str(reached)
    return JsonResponse(items, headers=headers)


def total_of(items: Sequence[Any], *, limit: int, offset: int) -> int | None:
    """How many there are in all, if a page that isn't full tells; None: they have to be counted."""
    return offset + len(items) if len(items) < limit and (items or offset == 0) else None


def selected(views: Sequence[Mapping[str, Any]], fields: Collection[str] | None) -> list[dict[str, Any]]:
    """The views with these fields alone, unknown ones left out; whole without any."""
    return [{key: view[key] for key in fields if key in view} if fields else dict(view) for view in views]
