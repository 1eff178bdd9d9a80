"""Why a pod of an Agent can't run, in the words a person needs. Pure; used by `decide`."""

from dataclasses import dataclass

import orjson

from runyard_api.agent import AgentSpec
from runyard_api.conditions import AgentReason
from runyard_operator.seen import PodView

IMAGE_TROUBLE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
        "SignatureValidationFailed",
    }
)
CONFIG_TROUBLE = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_TOLD = {r.value: r for r in (AgentReason.IMPORT_FAILED, AgentReason.NO_GRAPHS, AgentReason.UNSUPPORTED_LANGGRAPH)}


@dataclass(frozen=True)
class Problem:
    """A reason for the Ready condition and a sentence."""

    reason: AgentReason
    message: str


def problem_of_spec(spec: AgentSpec, *, env_secret_prefix: str) -> Problem | None:
    """What the API server can't refuse in an Agent; None if nothing."""
    for source in spec.pod_template.env_from or ():
        name = source.secret_ref.name
        if not name.startswith(env_secret_prefix):
            return Problem(
                AgentReason.SECRET_NOT_ALLOWED,
                f"spec.podTemplate.envFrom names Secret {name!r}; only Secrets whose names begin with "
                f"{env_secret_prefix!r} are allowed",
            )
    return None


def problem_of_pod(pod: PodView, image: str) -> Problem | None:
    """Why this pod ended or can't start; None if nothing speaks against it."""
    container = pod.container
    if pod.ended or container.exit_code is not None:
        return _told(container.termination_message) or _ended(pod)
    if container.waiting_reason in IMAGE_TROUBLE:
        return Problem(AgentReason.IMAGE_PULL_FAILED, f"image {image}: {_cause(container.waiting_message)}")
    if container.waiting_reason in CONFIG_TROUBLE:
        missing = "secret" in container.waiting_message and "not found" in container.waiting_message
        reason = AgentReason.SECRET_NOT_FOUND if missing else AgentReason.POD_FAILED
        return Problem(reason, container.waiting_message or container.waiting_reason)
    if pod.unschedulable is not None:
        return Problem(AgentReason.UNSCHEDULABLE, pod.unschedulable)
    return None


def _told(message: str) -> Problem | None:
    """What the runtime wrote before it gave up: `{"reason", "message"}`, maybe as the last line of a log."""
    for line in reversed(message.strip().splitlines()):
        try:
            told = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(told, dict) and told.get("reason"):
            said = str(told.get("message") or told["reason"])
            known = _TOLD.get(told["reason"])
            return Problem(known, said) if known else Problem(AgentReason.POD_FAILED, f"{told['reason']}: {said}")
    return None


def _ended(pod: PodView) -> Problem:
    container = pod.container
    if container.exit_code is None:
        return Problem(AgentReason.POD_FAILED, pod.phase_message or pod.phase_reason or f"the pod is {pod.phase}")
    why = "" if container.exit_reason in ("", "Error", "Completed") else f" ({container.exit_reason})"
    lines = container.termination_message.strip().splitlines()
    said = f": {lines[-1]}" if lines else ""
    return Problem(AgentReason.POD_FAILED, f"the container ended with exit code {container.exit_code}{why}{said}")


def _cause(message: str) -> str:
    """The end of the chain of causes: of `… failed to resolve reference "x:1": x:1: not found` it is `not found`."""
    return message.rsplit(": ", 1)[-1].strip() or "it can't be pulled"
