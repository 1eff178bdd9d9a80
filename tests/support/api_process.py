"""The process of a lone API server, to crash it and to start it again on its etcd. Used by tests of outages."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.apiserver import ApiServer


class ApiProcess:
    """The kube-apiserver of a folder of `hack/cluster apiserver`, which ends it also after it was restarted."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._note = api.kubeconfig.parent / "kube-apiserver.pid.json"
        self._command = Path(f"/proc/{self._pid}/cmdline").read_text().rstrip("\0").split("\0")

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def start(self) -> None:
        """The same program at the same port; returns when it answers, within a minute."""
        folder = self._note.parent
        with (folder / "kube-apiserver.log").open("ab") as log:
            child = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        self._note.write_text(json.dumps({"pid": child.pid, "started": started}))
        child.returncode = 0  # it may outlive us: Popen needn't warn about that
        end = time.monotonic() + 60
        while self._api.try_kubectl("get", "--raw", "/readyz").returncode != 0:
            assert time.monotonic() < end
            time.sleep(0.1)

    @property
    def _pid(self) -> int:
        return int(json.loads(self._note.read_text())["pid"])
