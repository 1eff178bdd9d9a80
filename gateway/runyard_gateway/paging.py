"""Pagination headers of lists: the total, and where the next page begins if there is one. Pure."""

from collections.abc import Sequence
from typing import Any

from runyard_gateway.body import JsonResponse


def page(items: Sequence[Any], *, total: int, offset: int) -> JsonResponse:
    """One page of a list of `total` items that begins at `offset`."""
    headers = {"X-Pagination-Total": str(total)}
    reached = offset + len(items)
    if items and reached < total:
        headers["X-Pagination-Next"] = str(reached)
    return JsonResponse(items, headers=headers)
