"""Conditions of our resources and their reasons. Pure; the operator computes them, everyone may read them."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from runyard_api.crd import CrdModel, Timestamp

MESSAGE_LIMIT = 1024


class ConditionType(StrEnum):
    READY = "Ready"
    """Agent: at least one pod takes runs, or one is started as soon as there is something to do."""
    PROGRESSING = "Progressing"
    """Agent: pods are being started or replaced."""
    GRAPH_CONFLICT = "GraphConflict"
    """Agent: an older Agent serves a graph of the same id; only there when it is so."""
    ADMITTED = "Admitted"
    """Run: whether it got a row, a sequence and a place in its thread's queue. Of a Run that the gateway made it is
    written as soon as a pod executes it or it ends."""
    SUCCEEDED = "Succeeded"
    """Run: Unknown while a pod executes it or it waits for an Agent that doesn't exist, True or False once it ended."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class AgentReason(StrEnum):
    """Reasons of Ready and Progressing."""

    AVAILABLE = "Available"
    SCALED_TO_ZERO = "ScaledToZero"
    """No pod is up because there is nothing to do; the graphs are known from earlier ones."""
    DELETING = "Deleting"
    PODS_STARTING = "PodsStarting"
    PODS_REPLACED = "PodsReplaced"
    UP_TO_DATE = "UpToDate"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    IMPORT_FAILED = "ImportFailed"
    NO_GRAPHS = "NoGraphs"
    UNSUPPORTED_LANGGRAPH = "UnsupportedLangGraph"
    POD_FAILED = "PodFailed"
    CRASH_LOOP = "CrashLoop"
    """Pods failed again and again; the next one waits."""
    POD_REFUSED = "PodRefused"
    """The API server refused a pod: quota, Pod Security, a webhook."""
    UNSCHEDULABLE = "Unschedulable"
    SECRET_NOT_ALLOWED = "SecretNotAllowed"
    """`envFrom` names a Secret without the prefix that the release allows."""
    SECRET_NOT_FOUND = "SecretNotFound"
    DUPLICATE_GRAPH = "DuplicateGraph"
    """Another Agent was first with a graph id."""


class RunReason(StrEnum):
    """Reasons of Admitted and Succeeded."""

    ACCEPTED = "Accepted"
    THREAD_BUSY = "ThreadBusy"
    INVALID_PAYLOAD = "InvalidPayload"
    UNKNOWN_AGENT = "UnknownAgent"
    AGENT_DELETED = "AgentDeleted"
    UNKNOWN_GRAPH = "UnknownGraph"
    NOT_STORED = "NotStored"
    """It has a sequence, which is the gateway's to give, but no record in the database."""
    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    AGENT_NOT_READY = "AgentNotReady"
    """No pod of the Agent became usable in time; the message carries the Agent's own reason."""
    TOO_MANY_FAILURES = "TooManyFailures"


class Condition(CrdModel):
    """One observation about an object, in the form that `kubectl wait` understands."""

    type: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="What is observed.")
    status: ConditionStatus = Field(description="Whether it holds; Unknown until that can be told.")
    reason: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z][A-Za-z0-9]*$")] = Field(
        description="Why, as one CamelCase word."
    )
    message: Annotated[str, Field(max_length=MESSAGE_LIMIT)] = Field(
        default="", description="Why, for a person. Empty: the reason says it all."
    )
    last_transition_time: Timestamp = Field(description="When `status` last changed.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation of the spec that was judged. Absent: not tied to the spec."
    )


def set_condition(
    conditions: Iterable[Condition],
    kind: ConditionType,
    status: ConditionStatus | bool | None,
    *,
    reason: StrEnum,
    message: str = "",
    generation: int | None = None,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions with this one added or replaced in its place; None as status is Unknown.

    `lastTransitionTime` stays while the status is the same; a long message is cut. Equal input gives an equal result,
    so a caller can compare and skip the write.
    """
    before = tuple(conditions)
    old = find_condition(before, kind)
    wanted = status if isinstance(status, ConditionStatus) else _STATUS_OF[status]
    new = Condition(
        type=kind.value,
        status=wanted,
        reason=reason.value,
        message=_cut(message),
        last_transition_time=old.last_transition_time if old and old.status is wanted else now.replace(microsecond=0),
        observed_generation=generation,
    )
    return tuple(new if c.type == kind else c for c in before) if old else (*before, new)


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """The condition of this type, or None."""
    return next((c for c in conditions if c.type == kind), None)


_STATUS_OF = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
