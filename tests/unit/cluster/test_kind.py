"""The kind provider: the commands that each verb would run. Nothing here starts a container."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

TOOL = Path(__file__).resolve().parents[3] / "hack" / "cluster"
sys.path.insert(0, str(TOOL))

from runyard_cluster import containers, kind  # noqa: E402
from runyard_cluster.errors import ClusterError  # noqa: E402

POD = {
    "metadata": {"namespace": "runyard", "name": "gateway-1"},
    "spec": {"nodeName": "runyard-worker"},
    "status": {
        "containerStatuses": [
            {"name": "gateway", "containerID": "containerd://abc", "state": {"running": {}}},
            {"name": "aside", "containerID": "containerd://def", "state": {"waiting": {}}},
        ]
    },
}


class Recorded:
    """Stands in for `shell.run`: notes commands and what they read, answers by the command's first words."""

    def __init__(self, **answers: str) -> None:
        self.answers = {name.replace("_", " "): answer for name, answer in answers.items()}
        self.commands: list[str] = []
        self.read: list[str] = []

    def __call__(
        self, command: Sequence[str | Path], *, timeout: float = 60, text_in: str | None = None, check: bool = True
    ) -> str:
        line = " ".join(map(str, command))
        self.commands.append(line)
        self.read += [text_in] if text_in else []
        return next((answer for start, answer in self.answers.items() if line.startswith(start)), "")


def provider(run: Recorded, folder: Path) -> kind.Kind:
    return kind.Kind(folder / "kind" / "kubeconfig", run)


def test_up_creates_the_cluster_of_the_file_with_as_many_workers_as_asked(tmp_path: Path) -> None:
    run = Recorded(kind_get_clusters="other\n")
    assert "3 worker(s)" in provider(run, tmp_path).up(3, replace=False)
    assert run.commands[-1] == (
        f"kind create cluster --name runyard --config - --wait 120s --kubeconfig {tmp_path}/kind/kubeconfig"
    )
    roles = [node["role"] for node in yaml.safe_load(run.read[0])["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


def test_up_keeps_a_cluster_that_is_there_and_replaces_it_when_asked(tmp_path: Path) -> None:
    run = Recorded(kind_get_clusters="runyard\n")
    assert "up already" in provider(run, tmp_path).up(2, replace=False)
    assert run.commands == ["kind get clusters"]
    provider(run, tmp_path).up(2, replace=True)
    assert [line.split()[1] for line in run.commands[1:]] == ["get", "delete", "create"]


def test_a_cluster_of_no_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="1 to 9 nodes, not 0"):
        provider(Recorded(), tmp_path).up(0, replace=False)


@pytest.mark.parametrize(("last", "is_up"), [("True", True), ("Unknown", False)])
def test_status_is_up_when_every_node_is_ready(tmp_path: Path, last: str, is_up: bool) -> None:
    def node(name: str, ready: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}

    items = json.dumps({"items": [node("runyard-worker", last), node("runyard-control-plane", "True")]})
    lines, up = provider(Recorded(kind_get_clusters="runyard\n", kubectl=items), tmp_path).status()
    assert up is is_up
    assert lines[-1] == f"  runyard-worker {'Ready' if is_up else 'NotReady'}"


def test_status_without_a_cluster_asks_nothing_of_it(tmp_path: Path) -> None:
    run = Recorded(kind_get_clusters="No kind clusters found.\n")
    assert provider(run, tmp_path).status() == (["No kind cluster named runyard is up."], False)
    assert run.commands == ["kind get clusters"]


def test_archives_are_loaded_one_by_one_and_a_missing_one_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "gateway.tar"
    archive.touch()
    run = Recorded()
    provider(run, tmp_path).load([archive])
    assert run.commands == [f"kind load image-archive {archive} --name runyard"]
    with pytest.raises(ClusterError, match=r"There is no file .*/none.tar"):
        provider(run, tmp_path).load([tmp_path / "none.tar"])


def test_nodes_are_killed_and_started_as_containers(tmp_path: Path) -> None:
    run = Recorded(kind_get_nodes="runyard-worker\nrunyard-control-plane\n")
    provider(run, tmp_path).kill_node("runyard-worker")
    provider(run, tmp_path).start_node("runyard-worker")
    assert [line for line in run.commands if line.startswith("docker")] == [
        "docker kill runyard-worker",
        "docker start runyard-worker",
    ]
    assert run.commands[-1].endswith("wait node/runyard-worker --for=condition=Ready --timeout=120s")
    with pytest.raises(ClusterError, match="no node node1; the nodes are runyard-worker, runyard-control-plane"):
        provider(run, tmp_path).kill_node("node1")


def test_a_container_is_killed_on_its_node(tmp_path: Path) -> None:
    run = Recorded(kubectl=json.dumps(POD))
    provider(run, tmp_path).kill_container("runyard", "gateway-1", None)
    assert run.commands[-1] == ("docker exec runyard-worker ctr --namespace k8s.io tasks kill --signal SIGKILL abc")


@pytest.mark.parametrize(
    ("container", "said"), [("other", "has no container other; it has gateway, aside"), ("aside", "doesn't run")]
)
def test_a_container_that_cannot_be_killed_is_refused_with_its_name(container: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        containers.target(POD, container)
    assert containers.target(POD, None) == containers.Target("runyard-worker", "abc")


def test_logs_come_from_the_nodes_services_or_from_static_pods(tmp_path: Path) -> None:
    run = Recorded(kind_get_nodes="runyard-worker\n")
    kubelet = provider(run, tmp_path).log("kubelet", "runyard-worker", follow=True)
    assert " ".join(kubelet) == "docker exec runyard-worker journalctl --no-pager --unit kubelet -f"
    etcd = provider(run, tmp_path).log("etcd", None, follow=False)
    assert etcd[-2:] == ["logs", "etcd-runyard-control-plane"]


def test_down_removes_the_kubeconfig_too(tmp_path: Path) -> None:
    cluster = provider(Recorded(), tmp_path)
    cluster.kubeconfig.parent.mkdir()
    cluster.kubeconfig.touch()
    cluster.down()
    assert not cluster.kubeconfig.exists()


def test_missing_programs_are_named() -> None:
    assert kind.missing(lambda name: None if name == "kind" else f"/usr/bin/{name}") == [
        "The program kind is missing; the kind provider needs it on PATH."
    ]


def test_a_verb_of_the_native_cluster_alone_is_refused_in_one_sentence() -> None:
    command = [sys.executable, str(TOOL), "--provider", "kind", "policy", "on"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("cluster: The kind provider has no verb policy; it has up, down")
