"""What to do for one Agent: its pods, and what its status says. Pure; called by `reconcile`."""

from datetime import datetime

from runyard_operator.agents.crew import plan_pods
from runyard_operator.agents.manifests import hash_of
from runyard_operator.agents.model import AgentObserved, AgentPlan
from runyard_operator.agents.problems import problem_of_spec
from runyard_operator.agents.status import status_of, when_to_write


def decide(seen: AgentObserved, now: datetime, *, env_secret_prefix: str) -> AgentPlan:
    """The plan for one Agent. Two calls with the same arguments give the same plan."""
    agent = seen.agent
    refused = problem_of_spec(agent.spec, env_secret_prefix=env_secret_prefix)
    hash8 = hash_of(agent.spec)
    pods = plan_pods(seen, hash8, now, may_create=refused is None and not agent.deleting)
    status = status_of(seen, hash8, refused, pods.retire, now)
    write, write_at = when_to_write(seen, status, now)
    return AgentPlan(
        pods=pods,
        status=status if write else None,
        release=agent.deleting and all(_as_good_as_gone(seen, now)),
        due=min((at for at in (pods.due, write_at) if at is not None), default=None),
    )


def _as_good_as_gone(seen: AgentObserved, now: datetime) -> list[bool]:
    """For each pod, whether its time is over: one on a dead node may never go, and must not keep the Agent."""
    ends = [one.pod.metadata.deletion_timestamp for one in seen.pods]
    return [end is not None and end <= now for end in ends]
