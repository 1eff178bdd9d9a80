"""Whether one JSON document contains another, as Postgres' `@>` says it, for sqlite. Pure.

database.py gives it to sqlite as `runyard_contains`, which on Postgres is a function that the migration makes.
"""

from typing import Any

import orjson


def json_contains(document: str | bytes | None, wanted: str) -> bool:
    """Both as JSON text; None contains nothing."""
    return document is not None and contains(orjson.loads(document), orjson.loads(wanted))


def contains(document: Any, wanted: Any) -> bool:
    """An object contains one with some of its members, a list one whose items it contains in whatever order."""
    if isinstance(wanted, dict):
        return isinstance(document, dict) and all(
            key in document and contains(document[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(document, list) and all(any(contains(item, one) for item in document) for one in wanted)
    if isinstance(document, bool) or isinstance(wanted, bool):
        return document is wanted
    return bool(document == wanted)
