"""The pure parts of the cluster tool: cache key, versions, sentences, names, ports, configuration, process identity."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "hack" / "cluster"
sys.path.insert(0, str(TOOL))

from runyard_cluster import cgroups, components, configs, deps, image_names, images, policy, recipe, standalone  # noqa: E402
from runyard_cluster.errors import ClusterError, timed_out  # noqa: E402
from runyard_cluster.processes import Process, identify, start_time  # noqa: E402
from runyard_cluster.settings import read_settings  # noqa: E402

PLACE = components.Place(Path("/state"), Path("/bin-folder"))


def copy_of_sources(target: Path) -> Path:
    """Return a folder with just the files that the cache key reads."""
    for name in ("go.mod", "go.sum", "cmd/pause/main.go", "runyard_cluster/recipe.py", "runyard_cluster/images.py"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text((TOOL / name).read_text())
    return target


def test_the_cache_key_is_stable_and_follows_every_source(tmp_path: Path) -> None:
    source = copy_of_sources(tmp_path)
    key = recipe.cache_key(source)
    assert key == recipe.cache_key(source)
    for name in ("go.sum", "cmd/pause/main.go", "runyard_cluster/recipe.py"):
        before = (source / name).read_text()
        (source / name).write_text(before + "\n")
        assert recipe.cache_key(source) != key, name
        (source / name).write_text(before)
    (source / "cmd/pause/other.go").write_text("package main\n")
    assert recipe.cache_key(source) != key


def test_link_flags_carry_the_version_of_kubernetes() -> None:
    flags = recipe.link_flags("v1.37.2")
    assert "version.gitVersion=v1.37.2" in flags
    assert "version.gitMinor=37" in flags


def test_a_module_at_a_version_is_installed_and_a_package_of_ours_is_built(tmp_path: Path) -> None:
    assert recipe.go_command("kube-router", recipe.KUBE_ROUTER, tmp_path, "-s")[3:5] == ["go", "install"]
    built = recipe.go_command("pause", "./cmd/pause", tmp_path, "-s")
    assert built[-3:] == ["-o", str(tmp_path / "pause"), "./cmd/pause"]


def test_missing_packages_make_one_sentence_with_the_command() -> None:
    names = deps.missing(deps.PACKAGES, lambda package: package.name not in ("runc", "podman"))
    assert names == ["runc", "podman"]
    sentence = deps.packages_sentence(names)
    assert sentence.endswith("apt-get install -y --no-install-recommends runc podman")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "Go 1.26.6 or newer is needed to build the cluster's binaries and was not found on PATH."),
        ("go1.22.1", "Go 1.26.6 or newer is needed to build the cluster's binaries; this machine has go1.22.1."),
        ("go1.26.6", None),
        ("go1.27rc1", None),
        ("go1.30", None),
    ],
)
def test_the_sentence_about_go(found: str | None, expected: str | None) -> None:
    assert deps.go_sentence(found, (1, 26, 6)) == expected


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("team/app:2", "docker.io/team/app:2"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("registry.example/a/b:1", "registry.example/a/b:1"),
        ("registry.example/a@sha256:00", "registry.example/a@sha256:00"),
    ],
)
def test_image_names_are_completed_like_the_kubelet_does(short: str, full: str) -> None:
    assert image_names.full_name(short) == full


def test_an_archive_of_our_own_names_its_image(tmp_path: Path) -> None:
    binary = tmp_path / "tool"
    binary.write_bytes(b"not really a program")
    images.write_image(tmp_path / "tool.tar", "runyard.dev/tool:1", binary)
    assert image_names.image_names(tmp_path / "tool.tar") == ["runyard.dev/tool:1"]


def test_a_file_that_is_no_archive_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("no")
    with pytest.raises(ClusterError, match="is not an image archive"):
        image_names.image_names(tmp_path / "x.tar")


def test_free_ports_differ() -> None:
    ports = standalone.free_ports(5)
    assert len(set(ports)) == 5
    assert all(port > 1023 for port in ports)


def test_a_machine_survives_being_written_and_read() -> None:
    machine = components.node(PLACE, 2, 3)
    assert components.Machine.from_json(machine.to_json()) == machine


def test_a_node_has_routes_to_the_others_only_and_keeps_its_addresses() -> None:
    machine = components.node(PLACE, 2, 3)
    assert machine.address == "172.30.0.11"
    assert machine.routes == {"10.244.1.0/24": "172.30.0.10", "10.244.3.0/24": "172.30.0.12"}
    assert components.node_manifest(2)["spec"]["podCIDR"] == "10.244.2.0/24"


def test_only_what_needs_the_api_waits_for_it() -> None:
    waiting = {part.name for part in components.node(PLACE, 1, 1).components if part.waits}
    assert waiting == {"kubelet", "kube-proxy", "kube-router"}


def test_configuration_files_of_a_node() -> None:
    files = configs.node_files(PLACE, 1)
    assert json.loads(files["kubelet.json"])["cgroupRoot"] == "/runyard/node1"
    bridge = json.loads(files["cni/10-bridge.conflist"])["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]
    assert 'root = "/state/node1/containerd"' in files["containerd.toml"]
    assert "restrict_oom_score_adj = true" in files["containerd.toml"]


def test_volumes_lie_in_the_folder_of_their_node() -> None:
    found = json.loads(configs.control_plane_files(PLACE, 2)["local-path.json"])["nodePathMap"]
    assert found[1] == {"node": "node2", "paths": ["/state/node2/volumes"]}


def test_flushing_keeps_the_rules_of_others() -> None:
    saved = (
        "*filter\n:FORWARD ACCEPT [0:0]\n:KUBE-ROUTER-FORWARD - [0:0]\n:KUBE-FIREWALL - [0:0]\n"
        "-A FORWARD -j KUBE-ROUTER-FORWARD\n-A KUBE-POD-FW-X -j DROP\n-A OUTPUT -j KUBE-FIREWALL\nCOMMIT\n"
    )
    kept = "*filter\n:FORWARD ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n-A OUTPUT -j KUBE-FIREWALL\nCOMMIT\n"
    assert policy.without_own_rules(saved) == kept


@pytest.mark.parametrize("controllers", [["cpuset", "memory"], []])
def test_cgroup_folders_are_made_and_removed_for_one_node(tmp_path: Path, controllers: list[str]) -> None:
    for controller in controllers:
        (tmp_path / controller).mkdir()
    if not controllers:
        (tmp_path / "cgroup.controllers").write_text("cpu memory")
    cgroups.make("node1", tmp_path)
    cgroups.make("node2", tmp_path)
    trees = [tmp_path / controller / "runyard" for controller in controllers] or [tmp_path / "runyard"]
    (trees[-1] / "node1" / "kubepods" / "pod1").mkdir(parents=True)
    cgroups.remove("node1", root=tmp_path)
    assert [sorted(path.name for path in tree.iterdir() if path.is_dir()) for tree in trees] == [["node2"]] * len(trees)


def test_settings_come_from_the_environment() -> None:
    found = read_settings({"XDG_CACHE_HOME": "/c", "RUNYARD_CLUSTER_STATE": "/s", "RUNYARD_CLUSTER_BIN": "/b"})
    assert (found.cache, found.state, found.bin_override) == (Path("/c/runyard/cluster"), Path("/s"), Path("/b"))
    assert read_settings({"HOME": "/nowhere"}).state == Path("/var/lib/runyard-cluster")


def test_a_process_is_known_by_its_start_and_not_by_its_pid_alone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        process = identify(child.pid)
        another = Process(child.pid, process.started + 1)
        another.kill()
        assert process.alive()
        assert not another.alive()
        process.kill()
        assert child.wait(5) == -9
        assert start_time(child.pid) is None
    finally:
        child.kill()


def test_a_timeout_names_component_and_log_and_shows_its_end(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("first\nlast\n")
    text = str(timed_out("Readiness", "etcd", log, 5))
    assert "etcd" in text
    assert str(log) in text
    assert text.endswith("    last")


@pytest.mark.parametrize("arguments", [["apiserver", "up"], ["nonsense"], ["up", "--nodes", "x"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_failure_is_one_sentence_without_traceback(tmp_path: Path) -> None:
    environment = os.environ | {"RUNYARD_CLUSTER_STATE": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, TOOL, "kubeconfig"], capture_output=True, text=True, timeout=10, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (1, f"cluster: No cluster is up (there is none in {tmp_path / 'none'}).\n")
