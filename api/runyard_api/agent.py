"""The Agent resource: which image and graphs can run, on how many pods. Models and the view that its readers share.

Read by operator and gateway; `crd_schema` turns the models into `crds/`.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from runyard_api.conditions import Condition, ConditionStatus, ConditionType, find_condition
from runyard_api.crd import (
    AGE,
    DNS_LABEL,
    Column,
    CrdModel,
    Flag,
    Int32,
    KindDefinition,
    Resource,
    list_map,
    rule,
    rules,
)

AGENT_NAME_LIMIT = 40
_GRAPH_TARGET = rule(
    "self.matches('^[^:]+:[A-Za-z_][A-Za-z0-9_]*$')", "must be path:variable, such as ./src/agent/graph.py:graph"
)
_GRAPH_IDS = rule("self.all(id, id.matches('^[^/\\\\s]+$'))", "graph ids must not be empty nor hold spaces or '/'")

GraphTarget = Annotated[str, Field(max_length=512, json_schema_extra=rules(_GRAPH_TARGET))]
SecretName = Annotated[str, Field(min_length=1, max_length=253)]
Quantity = Annotated[int | str, Field(json_schema_extra={"x-kubernetes-int-or-string": True})]
Resources = Annotated[dict[str, Quantity], Field(max_length=16)]
Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]


class PullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class SecretReference(CrdModel):
    """A Secret in the Agent's namespace."""

    name: SecretName = Field(description="Name of the Secret.")


class EnvVar(CrdModel):
    """One environment variable with a plain value; secret ones come by envFrom."""

    name: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="Name of the variable. Names that begin with RUNYARD_ are Runyard's own.",
        json_schema_extra=rules(
            rule(
                "self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",
                "must be letters, digits and '_', not beginning with a digit",
            ),
            rule("!self.startsWith('RUNYARD_')", "must not begin with RUNYARD_, which Runyard sets itself"),
        ),
    )
    value: Annotated[str, Field(max_length=32768)] = Field(default="", description="Its value. Absent: empty.")


class EnvFrom(CrdModel):
    """All keys of a Secret as environment variables."""

    secret_ref: SecretReference = Field(
        description="The Secret; its name must begin with the prefix that the release allows."
    )


class ResourceRequirements(CrdModel):
    """Compute resources of the agent container, as in a pod."""

    requests: Resources | None = Field(
        default=None, description="What scheduling reserves. Absent: the limits, or nothing."
    )
    limits: Resources | None = Field(default=None, description="What the container may use. Absent: unbounded.")


class Toleration(CrdModel):
    """A taint that the pods tolerate, as in a pod."""

    key: Annotated[str, Field(max_length=317)] | None = Field(default=None, description="Taint key. Absent: every key.")
    operator: Annotated[str, Field(json_schema_extra={"enum": ["Exists", "Equal"]})] | None = Field(
        default=None, description="Exists or Equal. Absent: Equal."
    )
    value: Annotated[str, Field(max_length=63)] | None = Field(default=None, description="Taint value. Absent: empty.")
    effect: (
        Annotated[str, Field(json_schema_extra={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]})] | None
    ) = Field(default=None, description="Taint effect. Absent: every effect.")
    toleration_seconds: Int32 | None = Field(
        default=None, description="Seconds until eviction by a NoExecute taint. Absent: never."
    )


class PodTemplate(CrdModel):
    """What a user may decide about agent pods; everything else is Runyard's."""

    image_pull_policy: PullPolicy | None = Field(
        default=None, description="When the image is pulled. Absent: Always for the tag latest, else IfNotPresent."
    )
    image_pull_secrets: Annotated[tuple[SecretReference, ...], Field(max_length=8)] | None = Field(
        default=None, description="Secrets of the image's registry. Absent: none.", json_schema_extra=list_map("name")
    )
    env: Annotated[tuple[EnvVar, ...], Field(max_length=128)] | None = Field(
        default=None, description="Environment variables. Absent: none.", json_schema_extra=list_map("name")
    )
    env_from: Annotated[tuple[EnvFrom, ...], Field(max_length=16)] | None = Field(
        default=None, description="Secrets whose keys become environment variables. Absent: none."
    )
    resources: ResourceRequirements | None = Field(default=None, description="Absent: neither requests nor limits.")
    node_selector: Labels | None = Field(default=None, description="Labels that a node must have. Absent: any node.")
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] | None = Field(
        default=None, description="Absent: only those that Runyard adds."
    )


class Replicas(CrdModel):
    """Between how many pods an Agent has, by how much there is to do."""

    model_config = ConfigDict(json_schema_extra=rules(rule("self.min <= self.max", "must be at least min", at=".max")))

    min: Annotated[Int32, Field(ge=0, le=100)] = Field(
        default=1, description="Pods kept in any case. 0: none while there is nothing to do."
    )
    max: Annotated[Int32, Field(ge=1, le=100)] = Field(
        default=1, description="Pods that take runs at most; while pods are replaced there may be others beside them."
    )
    idle_seconds: Annotated[Int32, Field(ge=1, le=86_400)] = Field(
        default=300, description="Seconds for which a pod above min isn't needed until it is removed."
    )


class RunDefaults(CrdModel):
    """What holds for Runs that don't say otherwise."""

    recursion_limit: Annotated[Int32, Field(ge=1, le=100_000)] = Field(
        default=25, description="Steps after which LangGraph ends a run in error."
    )
    ttl_seconds_after_finished: Annotated[Int32, Field(ge=0)] = Field(
        default=3600, description="Seconds until a finished Run object is deleted; its record in the database stays."
    )
    active_deadline_seconds: Annotated[Int32, Field(ge=1)] = Field(
        default=86_400,
        description="Seconds after the start of its first attempt at which a run is stopped and ends as timeout.",
    )
    max_failures: Annotated[Int32, Field(ge=1, le=100)] = Field(
        default=3, description="Failures of its pods after which a run ends in error."
    )


class AgentSpec(CrdModel):
    """What can run and on how many pods."""

    image: Annotated[str, Field(min_length=1, max_length=512)] = Field(
        description="Container image with the graphs and their langgraph.json.",
        json_schema_extra=rules(rule("!self.matches('\\\\s')", "must not hold spaces")),
    )
    graphs: Annotated[dict[str, GraphTarget], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Graph ids and where each is, path:variable. Absent: those of the image's langgraph.json.",
        json_schema_extra=rules(_GRAPH_IDS),
    )
    slots: Annotated[Int32, Field(ge=1, le=1000)] = Field(
        default=10, description="Runs that one pod executes at a time."
    )
    max_runs_per_pod: Annotated[Int32, Field(ge=0, le=1_000_000)] = Field(
        default=0,
        description="Runs after which a pod takes no more and is replaced. 1: each run has a pod of its own. 0: any "
        "number.",
    )
    replicas: Replicas = Field(default=Replicas(), description="How many pods.")
    drain_seconds: Annotated[Int32, Field(ge=0, le=86_400)] = Field(
        default=60,
        description="Seconds that runs have to end on a pod that is replaced or marked as draining; then they are "
        "handed over to another pod at their next step.",
    )
    pending_deadline_seconds: Annotated[Int32, Field(ge=1, le=86_400)] = Field(
        default=120,
        description="Seconds for which a run waits while no pod is usable until it ends in error. Waiting for a slot "
        "isn't bounded by it.",
    )
    pod_template: PodTemplate = Field(
        default=PodTemplate(), description="How its pods differ from the plain ones. Absent: in nothing."
    )
    run_defaults: RunDefaults = Field(
        default=RunDefaults(), description="What holds for Runs that don't say otherwise."
    )


class AgentPodStatus(CrdModel):
    """One pod of the Agent, for those who call it."""

    name: str = Field(description="Name of the pod.")
    endpoint: str | None = Field(default=None, description="Address, ip:port. Absent: no address yet.")
    nonce: str = Field(description="Creation nonce, part of the pod's token.")
    ready: Flag = Field(default=False, description="Whether it answers.")
    draining: Flag = Field(default=False, description="Whether it finishes its runs and takes no new one.")


class AgentStatus(CrdModel):
    """What was found, written by the operator alone."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="Generation of the spec last acted on. Absent: none."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(), description="Ready and Progressing.", json_schema_extra=list_map("type")
    )
    replicas: Annotated[Int32, Field(ge=0)] | None = Field(
        default=None, description="Pods that exist. Absent: not counted yet."
    )
    ready_replicas: Annotated[Int32, Field(ge=0)] | None = Field(
        default=None, description="Pods that take runs. Absent: not counted yet."
    )
    busy: Annotated[Int32, Field(ge=0)] | None = Field(
        default=None, description="Slots in use. Absent: not counted yet."
    )
    template_hash: str | None = Field(default=None, description="Hash of the pod template in use. Absent: no pod yet.")
    graphs: tuple[str, ...] = Field(
        default=(),
        description="Ids of the graphs found in the image.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    pods: tuple[AgentPodStatus, ...] = Field(default=(), description="The pods.", json_schema_extra=list_map("name"))


class Agent(Resource):
    """An Agent as read from the API server."""

    spec: AgentSpec
    status: AgentStatus = AgentStatus()

    @property
    def ready(self) -> Condition | None:
        """The Ready condition; None before the operator has seen the Agent."""
        return find_condition(self.status.conditions, ConditionType.READY)

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def graph_ids(self) -> tuple[str, ...]:
        """Ids of the graphs it serves, sorted: those found in its pods, before that those that its spec names. Empty:
        not known yet."""
        return tuple(sorted(self.status.graphs or self.spec.graphs or ()))

    @property
    def is_ready(self) -> bool:
        return self.ready is not None and self.ready.status is ConditionStatus.TRUE


AGENT = KindDefinition(
    model=Agent,
    plural="agents",
    short_name="ag",
    description="A LangGraph project that can run: its image, graphs and pods.",
    columns=(
        Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether runs can be executed."),
        Column("Replicas", "integer", ".status.replicas", "Pods that exist."),
        Column("Busy", "integer", ".status.busy", "Slots in use."),
        AGE,
    ),
    rules=(
        rule(
            f"self.metadata.name.size() <= {AGENT_NAME_LIMIT}",
            f"the name of an Agent has at most {AGENT_NAME_LIMIT} characters",
        ),
        rule(f"self.metadata.name.matches('{DNS_LABEL}')", "the name of an Agent must not hold a dot"),
    ),
)
