"""The command line: verbs, their options, exit codes. Prints results on stdout, progress and failures on stderr."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from runyard_cluster import build, deps, kind, logs, machines, policy, standalone, supervisor, up
from runyard_cluster.containers import kill_container
from runyard_cluster.errors import ClusterError
from runyard_cluster.load import load
from runyard_cluster.settings import CONTROL_PLANE, Settings, read_settings
from runyard_cluster.status import status

DESCRIPTION = """A real Kubernetes on this machine, in namespaces: no container engine and no registry needed.
Control plane and nodes have namespaces of their own, so every node can be killed and started again. The host reaches
the API server, Services (10.96.0.0/16) and pods (10.244.0.0/16) directly."""
EPILOG = """environment:
  RUNYARD_CLUSTER_STATE  folder of the running cluster (default /var/lib/runyard-cluster)
  RUNYARD_CLUSTER_BIN    a folder of ready binaries, instead of the ones that `build` makes
  XDG_CACHE_HOME         binaries are kept in runyard/cluster below it (default ~/.cache)"""

PROVIDERS = ("native", "kind")
Verb = Callable[[Settings, argparse.Namespace], int]


def main(arguments: Sequence[str]) -> int:
    """Run one verb and return the exit code: 0 done, 1 failed or not up, 2 wrong usage."""
    if len(arguments) == 2 and arguments[0] == "_machine":  # how `machines` starts pid 1 of a machine
        return supervisor.launch(Path(arguments[1]))
    options = parser().parse_args(arguments)
    verb: Verb = options.verb
    try:
        return kind.main(read_settings(), options) if options.provider == "kind" else verb(read_settings(), options)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        hint = " This verb may need root." if isinstance(error, PermissionError) else ""
        print(f"cluster: {error.strerror}: {error.filename}.{hint}", file=sys.stderr)
    except KeyboardInterrupt:
        print("cluster: interrupted", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of every verb."""
    shape = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser("cluster", description=DESCRIPTION, epilog=EPILOG, formatter_class=shape)
    top.add_argument(
        "--provider",
        choices=PROVIDERS,
        default=PROVIDERS[0],
        help="native (default): as said above; kind: Kubernetes in docker, see hack/kind.yaml",
    )
    verbs = top.add_subparsers(metavar="VERB", required=True)

    def add(name: str, verb: Verb, help_: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help_, description=help_[0].upper() + help_[1:] + ".")
        added.set_defaults(verb=verb, name=name)
        return added

    start = add(
        "up", _up, "start a cluster, unless it is up, and print how to use it (builds binaries first if needed)"
    )
    start.add_argument("--nodes", type=int, default=1, metavar="N", help="number of nodes (default 1)")
    start.add_argument("--replace", action="store_true", help="replace a cluster that is up")
    add("down", _down, "end the cluster and remove all of it")
    add("status", _status, "show components, nodes, versions and policy; exit code 1 when not all is up")
    archives = add("load", _load, "load image archives (OCI or docker) into every node")
    archives.add_argument(
        "archives", nargs="+", type=Path, metavar="IMAGE", help="file made by buildah, podman or docker save"
    )
    log = add("logs", _logs, "show the log of a component")
    log.add_argument("component", help="for example kubelet, kube-apiserver, supervisor")
    log.add_argument("--node", help=f"on which machine: a node or {CONTROL_PLANE} (default: the first that has it)")
    log.add_argument("-f", "--follow", action="store_true", help="go on with what is logged from now")
    add("kill-node", _kill_node, "kill a node like a power cut").add_argument("node")
    add("start-node", _start_node, "start a killed node again and wait until it is Ready").add_argument("node")
    crash = add("kill-container", _kill_container, "kill a container's process with SIGKILL, like a crash")
    crash.add_argument("pod")
    crash.add_argument("-n", "--namespace", default="default", help="the pod's (default: %(default)s)")
    crash.add_argument("--container", help="default: the pod's first")
    switch = add("policy", _policy, "switch NetworkPolicy enforcement on all nodes on or off")
    switch.add_argument("state", choices=("on", "off"))
    lone = add("apiserver", _apiserver, "start or end an API server without nodes (no root needed; several may run)")
    lone.add_argument("state", choices=("up", "down"))
    lone.add_argument("--dir", required=True, type=Path, help="folder of its state; `up` prints the kubeconfig in it")
    make = add("build", _build, "build the binaries, unless they are built, and print their folder")
    make.add_argument("--background", action="store_true", help="return at once; the build goes on by itself")
    need = add("deps", _deps, "check for system packages and Go; exit code 1 when something is missing")
    mode = need.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="check only (the default)")
    mode.add_argument("--install", action="store_true", help="install missing packages (root only)")
    add("kubeconfig", _kubeconfig, "print the path of the running cluster's kubeconfig")
    add("bin", _bin, "print the folder with kubectl and helm; exit code 1 when they aren't built")
    return top


def _up(settings: Settings, options: argparse.Namespace) -> int:
    build.say(up.up(settings, options.nodes, replace=options.replace))
    print("\n".join(up.summary(settings)))
    return 0


def _down(settings: Settings, _: argparse.Namespace) -> int:
    with up.changing():
        up.down(settings)
    return 0


def _status(settings: Settings, _: argparse.Namespace) -> int:
    lines, is_up = status(settings)
    print("\n".join(lines))
    return 0 if is_up else 1


def _load(settings: Settings, options: argparse.Namespace) -> int:
    ctr = Path(machines.read_marker(settings).bin) / "ctr"
    for name in load(ctr, machines.node_dirs(settings), options.archives):
        print(name)
    return 0


def _logs(settings: Settings, options: argparse.Namespace) -> int:
    logs.show(logs.find_log(settings, options.component, options.node), follow=options.follow)
    return 0


def _kill_node(settings: Settings, options: argparse.Namespace) -> int:
    with up.changing():
        up.kill_node(settings, options.node)
    return 0


def _start_node(settings: Settings, options: argparse.Namespace) -> int:
    with up.changing():
        up.start_node(settings, options.node)
    return 0


def _kill_container(settings: Settings, options: argparse.Namespace) -> int:
    kill_container(settings, options.namespace, options.pod, options.container)
    return 0


def _policy(settings: Settings, options: argparse.Namespace) -> int:
    with up.changing():
        machines.read_marker(settings)
        nodes = machines.node_dirs(settings)
        (policy.switch_on if options.state == "on" else policy.switch_off)(nodes)
    return 0


def _apiserver(settings: Settings, options: argparse.Namespace) -> int:
    folder = options.dir.absolute()
    if options.state == "up":
        print(standalone.api_up(settings, folder))
    else:
        standalone.api_down(folder)
    return 0


def _build(settings: Settings, options: argparse.Namespace) -> int:
    if options.background:
        build.say(build.build_in_background(settings))
    else:
        print(build.ensure_built(settings).bin)
    return 0


def _deps(_: Settings, options: argparse.Namespace) -> int:
    if options.install:
        deps.install()
    for sentence in (found := deps.problems()):
        print(f"cluster: {sentence}", file=sys.stderr)
    if not found:
        print("All system packages and Go are there.")
    return 1 if found else 0


def _kubeconfig(settings: Settings, _: argparse.Namespace) -> int:
    machines.read_marker(settings)
    print(settings.kubeconfig)
    return 0


def _bin(settings: Settings, _: argparse.Namespace) -> int:
    tools = build.toolchain(settings)
    if not tools.complete():
        raise ClusterError(f"The binaries aren't built; `build` makes them in {tools.bin}.")
    print(tools.bin)
    return 0
