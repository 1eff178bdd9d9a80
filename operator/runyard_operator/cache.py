"""What the operator last saw of the cluster: trimmed objects of one kind, found by name, uid or a spec field.

Filled by the watches (`feed`), by the answers to our own writes (`runs.objects`, `agents.reconcile`) and by lists
(`sweep`); read by the reconciles. Absence here proves nothing: a decision that rests on it is confirmed at the API
server.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from runyard_api.crd import ObjectMeta

TOMBSTONES = 10_000
"""Uids remembered as gone, so that an older echo can't bring an object back."""


class Seen(Protocol):
    """What the cache needs of an object."""

    @property
    def metadata(self) -> ObjectMeta: ...


def version_of(seen: Seen) -> int:
    """The resourceVersion as the number it is: within one kind it only grows (Kubernetes ≥ 1.35 says so)."""
    return int(seen.metadata.resource_version)


V = TypeVar("V", bound=Seen)
Place = tuple[str, str]


class Cache(Generic[V]):
    """Objects of one kind by (namespace, name), with groups by the given functions of an object."""

    def __init__(self, groups: Mapping[str, Callable[[V], str | None]] | None = None) -> None:
        self._group_of = dict(groups or {})
        self._objects: dict[Place, V] = {}
        self._groups: dict[tuple[str, str, str], dict[Place, V]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._objects.values()))

    def get(self, namespace: str, name: str) -> V | None:
        return self._objects.get((namespace, name))

    def group(self, by: str, namespace: str, value: str) -> list[V]:
        """The objects of a namespace whose group `by` is `value`, in the order they were first seen."""
        return list(self._groups.get((by, namespace, value), {}).values())

    def put(self, seen: V) -> bool:
        """Takes the object unless it is gone or this or a newer state of it is here; says whether it was taken."""
        place = (seen.metadata.namespace, seen.metadata.name)
        known = self._objects.get(place)
        if seen.metadata.uid in self._gone or (known is not None and version_of(known) >= version_of(seen)):
            return False
        if known is not None:
            if known.metadata.uid != seen.metadata.uid:
                self._bury(known.metadata.uid)
            self._drop_groups(place, known)
        self._objects[place] = seen
        for by, group_of in self._group_of.items():
            if (value := group_of(seen)) is not None:
                self._groups.setdefault((by, place[0], value), {})[place] = seen
        return True

    def remove(self, namespace: str, name: str, uid: str) -> V | None:
        """Forgets the object for good; returns what was known of it, None if it wasn't there with this uid."""
        self._bury(uid)
        known = self._objects.get((namespace, name))
        if known is None or known.metadata.uid != uid:
            return None
        del self._objects[(namespace, name)]
        self._drop_groups((namespace, name), known)
        return known

    def absent_from(self, listed: Iterable[str], list_version: int) -> list[V]:
        """The objects here that a list (its uids, its resourceVersion) doesn't have: ghosts of a missed deletion."""
        uids = set(listed)
        return [o for o in self._objects.values() if o.metadata.uid not in uids and version_of(o) <= list_version]

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        self._gone.move_to_end(uid)
        while len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)

    def _drop_groups(self, place: Place, known: V) -> None:
        for by, group_of in self._group_of.items():
            if (value := group_of(known)) is None:
                continue
            group = self._groups.get((by, place[0], value), {})
            group.pop(place, None)
            if not group:
                self._groups.pop((by, place[0], value), None)
