"""What is up and how it does, as text. Called by `cli`; calls `machines`, `api` and `build`."""

from pathlib import Path

from runyard_cluster import build, machines, policy
from runyard_cluster.api import Api, Manifest
from runyard_cluster.errors import ClusterError
from runyard_cluster.machines import MachineDir
from runyard_cluster.settings import API_SERVER, CONTROL_PLANE, Settings


def status(settings: Settings) -> tuple[list[str], bool]:
    """Return lines that tell about machines, nodes, versions and policy, and whether all of it is up."""
    every = machines.machine_dirs(settings)
    if not every:
        return [f"No cluster is up (there is none in {settings.state})."], False
    bin_folder = Path(machines.read_marker(settings).bin)
    api = Api(API_SERVER, settings.pki)
    ready = api.ready()
    lines = [
        f"state       {settings.state}",
        f"kubeconfig  {settings.kubeconfig}",
        f"binaries    {bin_folder}",
    ]
    lines += [f"API server  {API_SERVER} {'ready' if ready else 'not ready'}", f"policy      {_policy(every)}"]
    for machine in every:
        lines += _machine_lines(machine)
    nodes_up = False
    if ready:
        found = nodes(api)
        nodes_up = all(ready for _, ready in found.values())
        lines += ["nodes", *(f"  {text}" for text, _ in found.values())]
        lines += ["versions", f"  kubernetes {api.get('/version')['gitVersion']}"]
        lines += [f"  {name} {version}" for name, version in _versions(bin_folder).items()]
    return lines, ready and nodes_up and all(machine.runs() for machine in every)


def _versions(bin_folder: Path) -> dict[str, str]:
    try:
        return build.versions(bin_folder)
    except ClusterError:
        return {}


def _policy(every: list[MachineDir]) -> str:
    states = {policy.is_on(machine) for machine in every if machine.name != CONTROL_PLANE}
    return {frozenset({True}): "on", frozenset({False}): "off"}.get(frozenset(states), "on some nodes only")


def _machine_lines(machine: MachineDir) -> list[str]:
    process = machine.process
    if process is None or not machine.alive():
        return [f"{machine.name}: not running"]
    parts = machine.status()
    lines = [f"  {name:<24} {part['state']}, {part['starts']} start(s)" for name, part in parts.items()]
    return [f"{machine.name}: running, pid {process.pid}", *lines]


def nodes(api: Api) -> dict[str, tuple[str, bool]]:
    """Return node -> (a line about it, whether it is Ready); raises ClusterError when the API doesn't answer."""
    return {item["metadata"]["name"]: _node(item) for item in api.get("/api/v1/nodes")["items"]}


def _node(item: Manifest) -> tuple[str, bool]:
    found = item.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in found.get("conditions", [])}
    ready = conditions.get("Ready") == "True"
    address = next(
        (entry["address"] for entry in found.get("addresses", []) if entry["type"] == "InternalIP"), "no address"
    )
    name, cidr = item["metadata"]["name"], item["spec"].get("podCIDR", "none")
    return f"{name} {'Ready' if ready else 'NotReady'}, {address}, pods {cidr}", ready
