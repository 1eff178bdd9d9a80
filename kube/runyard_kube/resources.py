"""Which kinds the client can address, and their URL paths. Used by everyone who holds a KubeClient."""

from dataclasses import dataclass
from urllib.parse import quote

from runyard_api import names
from runyard_api.agent import AGENT
from runyard_api.run import RUN


@dataclass(frozen=True)
class Resource:
    """A kind as the API server addresses it; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of an object, or of the collection without a name; `namespace` None for cluster-wide."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part is not None]
        return "/".join(parts)


AGENTS = Resource(names.GROUP, names.VERSION, AGENT.plural)
RUNS = Resource(names.GROUP, names.VERSION, RUN.plural)
PODS = Resource("", "v1", "pods")
SECRETS = Resource("", "v1", "secrets")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
EVENTS = Resource("events.k8s.io", "v1", "events")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
