"""CPU seconds and memory of the parts of a system, by process, from /proc: fair figures on a machine that is busy.

The native cluster's processes are processes of this machine, in pid namespaces of their own: one look at /proc sees
them all, and tells them from others of the same name. Used by steps.py, relayed.py and streams.py.
"""

import os
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
BARE = "bare uvicorn"
_HERE = {
    "hack.bench.raw_server": BARE,
    "runyard_cli": "runyard dev",
    "langgraph": "langgraph dev",
}
_IN_CLUSTER = {
    "runyard_gateway": "gateway",
    "runyard-gateway": "gateway",
    "runyard_operator": "operator",
    "runyard-operator": "operator",
    "runyard_runtime": "runtime",
    "runyard-runtime": "runtime",
}
_BY_PROGRAM = {
    "kube-apiserver": "API server",
    "etcd": "etcd",
    "postgres": "Postgres",
    "postgres:": "Postgres",
    "kubelet": "nodes",
    "containerd": "nodes",
    "containerd-shim-runc-v2": "nodes",
}


@dataclass(frozen=True)
class Use:
    """CPU seconds so far, of children that ended too; resident memory in bytes now."""

    cpu: float = 0.0
    memory: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(self.cpu + other.cpu, self.memory + other.memory)


def part_of(command: Iterable[str], *, in_cluster: bool) -> str | None:
    """The part that a process with this command line belongs to, None for any other; `in_cluster`: not ours."""
    words = list(command)
    if not words:
        return None
    programs = (Path(word.split(" ")[0]).name for word in words[:2])  # the native cluster has several in one binary
    if in_cluster and (known := next((_BY_PROGRAM[name] for name in programs if name in _BY_PROGRAM), None)):
        return known
    by_word = _IN_CLUSTER if in_cluster else _HERE
    names = (Path(word).name for word in words[:4])
    return next((by_word[name] for name in names if name in by_word), None)


def parent_of(stat: str) -> int:
    """The parent's pid in the text of /proc/PID/stat."""
    return int(stat.rpartition(")")[2].split()[1])


def use_of(stat: str, *, ticks: int = _TICKS, page: int = 4096) -> Use:
    """Reads the text of /proc/PID/stat, whose second field may hold spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    user, system, of_children, system_of_children = (int(text) for text in fields[11:15])
    return Use((user + system + of_children + system_of_children) / ticks, int(fields[21]) * page)


def uses(root: Path = Path("/proc")) -> Mapping[str, Use]:
    """What each part has used so far, all its processes together: the cluster's, and this process's own children.

    Those that are gone meanwhile are left out.
    """
    found: defaultdict[str, Use] = defaultdict(Use)
    here = (root / "self" / "ns" / "pid").readlink()
    for folder in root.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            stat = (folder / "stat").read_text()
            in_cluster = (folder / "ns" / "pid").readlink() != here
        except OSError:
            continue
        if not in_cluster and parent_of(stat) != os.getpid():
            continue  # somebody else's
        if part := part_of(command, in_cluster=in_cluster):
            found[part] += use_of(stat)
    return found


def spent(before: Mapping[str, Use], after: Mapping[str, Use], *, but: Container[str] = ()) -> dict[str, float]:
    """CPU seconds by part between two looks, the biggest first, without those in `but`."""
    seconds = {part: use.cpu - before.get(part, Use()).cpu for part, use in after.items() if part not in but}
    return dict(sorted(((p, s) for p, s in seconds.items() if s > 0), key=lambda item: -item[1]))
