"""Names, labels and annotations of everything Runyard makes in a cluster, and ids derived from names. Deterministic."""

import hashlib
import uuid

import orjson

GROUP, VERSION = "runyard.dev", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
LABEL_AGENT = f"{GROUP}/agent"
LABEL_TEMPLATE_HASH = f"{GROUP}/template-hash"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "runyard"
ANNOTATION_NONCE = f"{GROUP}/nonce"
ANNOTATION_DRAINING = f"{GROUP}/draining"
"""On an agent pod: it takes no more runs and goes. The operator writes since when; a person may write anything."""
ANNOTATION_WANTED_AT = f"{GROUP}/wanted-at"
"""On an Agent: when a request last needed its graph code while no pod was up."""
AGENT_FINALIZER = f"{GROUP}/agent"
"""Keeps a deleted Agent until its runs have ended and its pods are gone."""
DEFAULT_USER = "default"
PRINCIPALS = ("gateway", "operator", "runtime")
"""Who connects to a cluster's database besides its owner; each has a role, a URL and a variable named after it."""
RUNTIME_PORT = 8123
_ASSISTANTS = uuid.UUID("6f1d5b0e-94d1-5f0e-8a55-6f6d8c9e2b11")


def template_hash(template: object) -> str:
    """Eight hex digits of a pod template's canonical JSON, whatever the order of its keys."""
    return hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]


def agent_pod_name(agent: str, hash8: str, index: int) -> str:
    """`<agent>-<hash>-<index>`; agent names are at most 40 characters, so a pod name is always a valid label."""
    return f"{agent}-{hash8}-{index}"


def template_hash_of(pod_name: str) -> str | None:
    """The template hash in the name of an agent pod; None if it is no such name."""
    parts = pod_name.rsplit("-", 2)
    return parts[1] if len(parts) == 3 else None


def system_assistant_id(graph_id: str) -> str:
    """The uuid5 id of the assistant that every registered graph has."""
    return str(uuid.uuid5(_ASSISTANTS, graph_id))
