"""A minimal client of the API server, for what `up`, `status` and the node verbs ask. Calls `errors`."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, TypeAlias

from runyard_cluster.errors import ClusterError

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON."""


class Api:
    """Requests as administrator, each on a connection of its own."""

    def __init__(self, server: str, pki: Path, *, timeout: float = 5) -> None:
        """Take the server's URL and the folder with ca.crt, admin.crt and admin.key; `timeout` in seconds."""
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        # No proxy, whatever the environment says: the server is on this machine.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        self._server, self._timeout = server, timeout

    def get(self, path: str) -> Manifest:
        """Return the object at a path; raises ClusterError for any other answer than 2xx."""
        loaded: Manifest = json.loads(self._send("GET", path))
        return loaded

    def create(self, path: str, body: Manifest) -> None:
        """Create an object; one that exists stays as it is. Raises ClusterError for other refusals."""
        try:
            self._send("POST", path, body)
        except ConflictError:
            return

    def ready(self) -> bool:
        """Tell whether the server answers and says that it is ready."""
        try:
            return self._send("GET", "/readyz") == "ok"
        except ClusterError:
            return False

    def exists(self, path: str) -> bool:
        """Tell whether an object can be read."""
        try:
            self.get(path)
        except ClusterError:
            return False
        return True

    def _send(self, method: str, path: str, body: Manifest | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        request = urllib.request.Request(self._server + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            kind = ConflictError if error.code == 409 else ClusterError
            raise kind(f"The API server answered {error.code} to {method} {path}: {error.read()[:300]!r}") from None
        except OSError as error:
            raise ClusterError(f"The API server at {self._server} can't be reached: {error}") from None


class ConflictError(ClusterError):
    """The object exists already, or has changed meanwhile."""
