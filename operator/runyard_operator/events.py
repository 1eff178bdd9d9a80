"""Kubernetes Events about our objects, only for what a person would look for: waiting, lost, failed, cancelled.

Called by the reconciles; an Event that can't be written is logged and never stops a reconcile.
"""

from datetime import UTC, datetime

import structlog

from runyard_api.crd import Manifest, Resource
from runyard_api.names import API_VERSION
from runyard_kube.errors import KubeError
from runyard_kube.resources import EVENTS
from runyard_operator.ports import Cluster

CONTROLLER = "runyard.dev/operator"
NOTE_LIMIT = 1024
NORMAL, WARNING = "Normal", "Warning"

log = structlog.get_logger()


def event(about: Resource, *, reason: str, note: str, kind: str, now: datetime, instance: str) -> Manifest:
    """The Event object; `reason` is CamelCase, `note` a sentence, `kind` NORMAL or WARNING, `instance` us."""
    meta = about.metadata
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta.name[:40]}-", "namespace": meta.namespace},
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": kind,
        "reason": reason,
        "action": reason,
        "note": note[:NOTE_LIMIT],
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": type(about).__name__,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
    }


async def post(cluster: Cluster, body: Manifest) -> None:
    """Writes an Event; failure to do so is no failure of what it tells about."""
    try:
        await cluster.create(EVENTS, body["metadata"]["namespace"], body)
    except KubeError as error:
        log.warning("event not written", reason=body["reason"], error=str(error))
