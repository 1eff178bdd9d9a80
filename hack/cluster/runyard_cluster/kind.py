"""The other provider: the same verbs on kind (Kubernetes in docker). Called by `cli` for `--provider kind`.

It needs docker, kind and kubectl on PATH, and fetches kind's node image when docker doesn't have it. Our CI has no
container engine, so only the commands that would run are tested.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runyard_cluster.containers import KILL, target
from runyard_cluster.errors import ClusterError
from runyard_cluster.settings import MAX_NODES, SOURCE, Settings
from runyard_cluster.shell import run as run_command

NAME = "runyard"
CONFIG = SOURCE.parent / "kind.yaml"
NEEDED = ("docker", "kind", "kubectl", "helm")
UNIT_COMPONENTS = ("kubelet", "containerd")  # services of the node; the others are static pods
UP_SECONDS = 900.0
LOAD_SECONDS = 600.0


class Run(Protocol):
    """`shell.run`: runs a command, returns its stdout, raises ClusterError."""

    def __call__(
        self, command: Sequence[str | Path], *, timeout: float = 60, text_in: str | None = None, check: bool = True
    ) -> str: ...


@dataclass(frozen=True)
class Kind:
    """A kind cluster named `runyard`; its kubeconfig is a file of its own, no context of the user's changes."""

    kubeconfig: Path
    run: Run = run_command

    def exists(self) -> bool:
        """Tell whether kind knows the cluster, running or not."""
        return NAME in self.run(["kind", "get", "clusters"], timeout=30).split()

    def nodes(self) -> list[str]:
        """Return the names of the nodes, the control plane's among them."""
        return self.run(["kind", "get", "nodes", "--name", NAME], timeout=30).split()

    def up(self, nodes: int, *, replace: bool) -> str:
        """Create the cluster, unless it is there, and return a sentence about it."""
        if not 1 <= nodes <= MAX_NODES:
            raise ClusterError(f"A cluster has 1 to {MAX_NODES} nodes, not {nodes}.")
        if self.exists():
            if not replace:
                return f"The kind cluster {NAME} is up already; `up --replace` makes a new one."
            self.down()
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        command = ["kind", "create", "cluster", "--name", NAME, "--config", "-", "--wait", "120s"]
        config = with_workers(CONFIG.read_text(), nodes)
        self.run([*command, "--kubeconfig", self.kubeconfig], timeout=UP_SECONDS, text_in=config)
        return f"The kind cluster {NAME} with {nodes} worker(s) is up."

    def down(self) -> None:
        """Delete the cluster; nothing happens when there is none."""
        self.run(["kind", "delete", "cluster", "--name", NAME, "--kubeconfig", self.kubeconfig], timeout=120)
        self.kubeconfig.unlink(missing_ok=True)

    def status(self) -> tuple[list[str], bool]:
        """Return lines about the nodes, and whether all of them are Ready."""
        if not self.exists():
            return [f"No kind cluster named {NAME} is up."], False
        found = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        ready = {node["metadata"]["name"]: _is_ready(node) for node in found}
        lines = [f"kubeconfig  {self.kubeconfig}", "nodes"]
        lines += [f"  {name} {'Ready' if up else 'NotReady'}" for name, up in sorted(ready.items())]
        return lines, bool(ready) and all(ready.values())

    def load(self, archives: Sequence[Path]) -> None:
        """Load image archives into every node."""
        for archive in archives:
            if not archive.is_file():
                raise ClusterError(f"There is no file {archive}.")
            self.run(["kind", "load", "image-archive", archive, "--name", NAME], timeout=LOAD_SECONDS)

    def node(self, name: str) -> str:
        """Return the name of a node that there is; raises ClusterError naming those."""
        known = self.nodes()
        if name not in known:
            raise ClusterError(f"There is no node {name}; the nodes are {', '.join(known) or 'none'}.")
        return name

    def kill_node(self, name: str) -> None:
        """Kill a node like a power cut."""
        self.run(["docker", "kill", self.node(name)])

    def start_node(self, name: str) -> None:
        """Start a killed node again and wait until it is Ready."""
        self.run(["docker", "start", self.node(name)])
        self.kubectl("wait", f"node/{name}", "--for=condition=Ready", "--timeout=120s", timeout=130)

    def kill_container(self, namespace: str, pod: str, container: str | None) -> None:
        """Kill a container of a pod with SIGKILL."""
        victim = target(json.loads(self.kubectl("get", "pod", pod, "-n", namespace, "-o", "json")), container)
        self.run(["docker", "exec", victim.node, "ctr", *KILL, victim.id])

    def log(self, component: str, node: str | None, *, follow: bool) -> list[str]:
        """Return the command that shows a component's log: of a service of the node, or of a static pod."""
        where = self.node(node) if node else f"{NAME}-control-plane"
        if component in UNIT_COMPONENTS:
            end = ["-f"] if follow else []
            return ["docker", "exec", where, "journalctl", "--no-pager", "--unit", component, *end]
        pods = ["--kubeconfig", str(self.kubeconfig), "-n", "kube-system", "logs", f"{component}-{where}"]
        return ["kubectl", *pods, *(["--follow"] if follow else [])]

    def kubectl(self, *arguments: str, timeout: float = 60) -> str:
        """Run kubectl as the cluster's administrator."""
        return self.run(["kubectl", "--kubeconfig", self.kubeconfig, *arguments], timeout=timeout)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def with_workers(config: str, nodes: int) -> str:
    """Return the text of hack/kind.yaml with `nodes` workers in place of those it has."""
    kept = [line for line in config.splitlines() if line.strip() != "- role: worker"]
    return "\n".join([*kept, *["  - role: worker"] * nodes]) + "\n"


def missing(which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """Return a sentence for each program that the provider needs and PATH doesn't have."""
    return [f"The program {name} is missing; the kind provider needs it on PATH." for name in NEEDED if not which(name)]


def main(settings: Settings, options: argparse.Namespace) -> int:
    """Run one verb on kind and return the exit code; raises ClusterError for verbs that only the native cluster has."""
    name: str = options.name
    if name not in VERBS:
        raise ClusterError(f"The kind provider has no verb {name}; it has {', '.join(VERBS)}.")
    if name != "deps" and (sentences := missing()):
        raise ClusterError(sentences[0])
    return VERBS[name](Kind(settings.cache.parent / "kind" / "kubeconfig"), options)


def _up(kind: Kind, options: argparse.Namespace) -> int:
    print(kind.up(options.nodes, replace=options.replace), file=sys.stderr)
    print(f"export KUBECONFIG={kind.kubeconfig}")
    return 0


def _down(kind: Kind, _: argparse.Namespace) -> int:
    kind.down()
    return 0


def _status(kind: Kind, _: argparse.Namespace) -> int:
    lines, is_up = kind.status()
    print("\n".join(lines))
    return 0 if is_up else 1


def _load(kind: Kind, options: argparse.Namespace) -> int:
    kind.load(options.archives)
    return 0


def _kill_node(kind: Kind, options: argparse.Namespace) -> int:
    kind.kill_node(options.node)
    return 0


def _start_node(kind: Kind, options: argparse.Namespace) -> int:
    kind.start_node(options.node)
    return 0


def _kill_container(kind: Kind, options: argparse.Namespace) -> int:
    kind.kill_container(options.namespace, options.pod, options.container)
    return 0


def _logs(kind: Kind, options: argparse.Namespace) -> int:
    command = kind.log(options.component, options.node, follow=options.follow)
    os.execvp(command[0], command)


def _deps(_: Kind, options: argparse.Namespace) -> int:
    if options.install:
        raise ClusterError(f"The kind provider installs nothing; it needs {', '.join(NEEDED)} on PATH.")
    for sentence in (found := missing()):
        print(f"cluster: {sentence}", file=sys.stderr)
    return 1 if found else 0


def _kubeconfig(kind: Kind, _: argparse.Namespace) -> int:
    if not kind.kubeconfig.exists():
        raise ClusterError("No kind cluster was started here; `up` starts one.")
    print(kind.kubeconfig)
    return 0


def _bin(_: Kind, __: argparse.Namespace) -> int:
    print(Path(shutil.which("kubectl") or "kubectl").parent)
    return 0


VERBS: Mapping[str, Callable[[Kind, argparse.Namespace], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "load": _load,
    "logs": _logs,
    "kill-node": _kill_node,
    "start-node": _start_node,
    "kill-container": _kill_container,
    "deps": _deps,
    "kubeconfig": _kubeconfig,
    "bin": _bin,
}
