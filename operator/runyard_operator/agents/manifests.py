"""Builds the pod of an Agent. Pure: specs and names in, a manifest out. Called by `decide` (hash) and `reconcile`."""

from dataclasses import dataclass

import orjson

from runyard_api.agent import Agent, AgentSpec
from runyard_api.crd import Manifest
from runyard_api.names import (
    ANNOTATION_NONCE,
    API_VERSION,
    LABEL_AGENT,
    LABEL_MANAGED_BY,
    LABEL_TEMPLATE_HASH,
    MANAGED_BY,
    RUNTIME_PORT,
    template_hash,
)
from runyard_operator.seen import RUNTIME_CONTAINER, RUNTIME_PORT_NAME
from runyard_process.logs import LogSettings

UID = 10001
HOME = "/home/runyard"
STEP_SECONDS = 60
"""How long the step that a run is at may take, at least, before it is cut when its pod has to go."""
STOP_SECONDS = 40
"""What the runtime takes after that to stop its runs (30) and to end."""
_NOT_READY_SECONDS = 10


@dataclass(frozen=True)
class PodIdentity:
    """What makes one pod different from its siblings. `token_sha256` is all of its token that the pod carries."""

    name: str
    nonce: str
    token_sha256: str


def hash_of(spec: AgentSpec) -> str:
    """Eight hex digits of everything in the Agent that its pods depend on. What the release injects stays out:
    otherwise each upgrade of the chart would replace every pod. So does how long runs may take to leave a pod: that
    is no reason for them to."""
    template = {
        "image": spec.image,
        "graphs": spec.graphs,
        "slots": spec.slots,
        "recursionLimit": spec.run_defaults.recursion_limit,
        "podTemplate": spec.pod_template.to_json(),
    }
    return template_hash(template | ({"maxRunsPerPod": spec.max_runs_per_pod} if spec.max_runs_per_pod else {}))


def step_seconds(spec: AgentSpec) -> int:
    """How long the runtime waits for its runs' steps to end, once its pod has to go."""
    return max(STEP_SECONDS, spec.drain_seconds)


def agent_pod(agent: Agent, identity: PodIdentity, *, database_secret: str, logs: LogSettings) -> Manifest:
    """The pod: restricted, without API access, owned by the Agent; `database_secret` holds the URL under `url`; it logs
    as the operator does."""
    template = agent.spec.pod_template.to_json()
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": step_seconds(agent.spec) + STOP_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "fsGroup": UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(agent.spec, identity, database_secret, logs)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "home", "emptyDir": {}}],
        "tolerations": [*_own_tolerations(), *template.get("tolerations", ())],
    }
    for key in ("imagePullSecrets", "nodeSelector"):
        if key in template:
            spec[key] = template[key]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(agent, identity), "spec": spec}


def _metadata(agent: Agent, identity: PodIdentity) -> Manifest:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Agent",
        "name": agent.metadata.name,
        "uid": agent.metadata.uid,
        "controller": True,
    }
    return {
        "name": identity.name,
        "namespace": agent.metadata.namespace,
        "labels": {
            LABEL_AGENT: agent.metadata.name,
            LABEL_TEMPLATE_HASH: hash_of(agent.spec),
            LABEL_MANAGED_BY: MANAGED_BY,
        },
        "annotations": {ANNOTATION_NONCE: identity.nonce},
        "ownerReferences": [owner],
    }


def _container(spec: AgentSpec, identity: PodIdentity, database_secret: str, logs: LogSettings) -> Manifest:
    template = spec.pod_template.to_json()
    container: Manifest = {
        "name": RUNTIME_CONTAINER,
        "image": spec.image,
        "env": [*template.get("env", ()), *_environment(spec, identity, database_secret, logs)],
        "ports": [{"name": RUNTIME_PORT_NAME, "containerPort": RUNTIME_PORT, "protocol": "TCP"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "home", "mountPath": HOME}],  # noqa: S108
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": _probe(period=1, failures=120),
        "readinessProbe": _probe(period=5, failures=2),
        "livenessProbe": _probe(period=10, failures=6),
    }
    for key in ("imagePullPolicy", "envFrom", "resources"):
        if key in template:
            container[key] = template[key]
    return container


def _environment(spec: AgentSpec, identity: PodIdentity, database_secret: str, logs: LogSettings) -> list[Manifest]:
    """Runyard's own variables come last, so nothing in the template replaces one of them."""
    given = {
        "RUNYARD_SLOTS": str(spec.slots),
        "RUNYARD_MAX_RUNS": str(spec.max_runs_per_pod),
        "RUNYARD_DRAIN_SECONDS": str(step_seconds(spec)),
        "RUNYARD_PORT": str(RUNTIME_PORT),
        "RUNYARD_TOKEN_SHA256": identity.token_sha256,
        "RUNYARD_RECURSION_LIMIT": str(spec.run_defaults.recursion_limit),
        "HOME": HOME,
        **logs.environment(),
    }
    if spec.graphs is not None:
        given["RUNYARD_GRAPHS"] = orjson.dumps(spec.graphs, option=orjson.OPT_SORT_KEYS).decode()
    secret = {"secretKeyRef": {"name": database_secret, "key": "url"}}
    return [
        *({"name": name, "value": value} for name, value in given.items()),
        {"name": "RUNYARD_DATABASE_URL", "valueFrom": secret},
        {"name": "RUNYARD_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]


def _probe(*, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": "/healthz", "port": RUNTIME_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _own_tolerations() -> list[Manifest]:
    """A node that is gone costs its pods ten seconds, not the five minutes of the cluster's default."""
    return [
        {
            "key": f"node.kubernetes.io/{problem}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _NOT_READY_SECONDS,
        }
        for problem in ("not-ready", "unreachable")
    ]
