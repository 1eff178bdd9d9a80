"""`runyard keys` on an installed release, by the kubeconfig of whoever runs it."""

import json
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from tests.e2e.servers import RELEASE, Cluster, Server

pytestmark = pytest.mark.cluster


def keys(cluster: Cluster, *arguments: str) -> Any:
    """What a command prints as JSON; of one that fails, its sentence."""
    command = [sys.executable, "-m", "runyard_cli", "keys", *arguments, "-n", RELEASE, "-o", "json"]
    done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=90, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def status(server: Server, key: str) -> int:
    return httpx.post(f"{server.url}/threads/search", json={}, headers={"x-api-key": key}, timeout=20).status_code


def test_a_key_is_made_used_listed_and_revoked_within_ten_seconds(cluster: Cluster, cluster_server: Server) -> None:
    made = keys(cluster, "create", "--user", "alice", "--name", "e2e")
    assert status(cluster_server, made["key"]) == 200
    (listed,) = [row for row in keys(cluster, "list", "--user", "alice") if row["id"] == made["id"]]
    assert (listed["name"], listed["revoked_at"], "key" in listed) == ("e2e", None, False)
    assert keys(cluster, "revoke", made["id"])["revoked_at"]
    end = time.monotonic() + 12
    while status(cluster_server, made["key"]) != 401:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_what_goes_wrong_is_one_sentence(cluster: Cluster) -> None:
    assert keys(cluster, "revoke", "nope") == "Error: there is no key with the id nope."
    assert "no gateway of a release 'other'" in keys(cluster, "list", "--release", "other")
    assert keys(cluster, "list", "--context", "nope").startswith("Error: kubectl: ")
