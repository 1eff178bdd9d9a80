"""Where the API server is and who we are there: from a kubeconfig or from inside a pod. Called when a client opens."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from runyard_kube.errors import Unauthorized


@dataclass(frozen=True)
class Login:
    """An API server and credentials. `configuration` refreshes a service account's token by itself."""

    configuration: Configuration
    tls: ssl.SSLContext

    @property
    def host(self) -> str:
        return str(self.configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name expected in the server's certificate; None: the host's."""
        name: str | None = self.configuration.tls_server_name
        return name

    @property
    def proxy(self) -> str | None:
        proxy: str | None = self.configuration.proxy
        return proxy

    async def authorization(self) -> str | None:
        """The Authorization header for the next request; None when a client certificate speaks for us."""
        return await self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")


async def log_in(kubeconfig: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Login:
    """Reads the first that is given: `kubeconfig`, $KUBECONFIG, the pod's service account, ~/.kube/config.

    Raises Unauthorized with one sentence if none can be used.
    """
    configuration = Configuration()
    path = kubeconfig or (Path(environ["KUBECONFIG"]) if environ.get("KUBECONFIG") else None)
    try:
        if path is None and environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            file = path or Path.home() / ".kube" / "config"
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                str(file), client_configuration=configuration, persist_config=False
            )
        return Login(configuration, RESTClientObject(configuration).ssl_context)
    except (config.ConfigException, OSError) as error:
        raise Unauthorized(f"no usable Kubernetes credentials: {error}") from error
