"""Writes to the pods of an Agent: made, marked as draining, deleted. Called by `reconcile`; answers go to the cache."""

import structlog

from runyard_api.agent import Agent
from runyard_api.conditions import AgentReason
from runyard_api.names import ANNOTATION_DRAINING
from runyard_api.tokens import pod_token, token_hash
from runyard_kube import errors as kube
from runyard_kube.resources import PODS
from runyard_operator.agents.manifests import PodIdentity, agent_pod
from runyard_operator.agents.problems import Problem
from runyard_operator.agents.starts import Starts
from runyard_operator.seen import PodView, pod_of
from runyard_operator.workqueue import Key
from runyard_operator.world import World

UNSEEN_SECONDS = 1.0
"""How long the watch has to tell of a pod that exists though it isn't cached."""

log = structlog.get_logger()


async def create_pod(world: World, starts: Starts, agent: Agent, name: str) -> bool:
    """Makes one pod; one of that name that is ours already is as good. False: the API server refuses pods."""
    namespace, nonce, again = agent.metadata.namespace, world.nonce(), 0.0
    token = pod_token(world.settings.token_key, namespace=namespace, pod=name, nonce=nonce)
    identity = PodIdentity(name, nonce, token_hash(token))
    body = agent_pod(agent, identity, database_secret=world.settings.agent_database_secret, logs=world.settings.logs)
    try:
        pod = pod_of(await world.cluster.create(PODS, namespace, body))
    except kube.AlreadyExists:
        pod, again = pod_of(await world.cluster.get(PODS, namespace, name)), UNSEEN_SECONDS
    except (kube.Invalid, kube.Forbidden) as refusal:
        starts.note_refusal(Problem(AgentReason.POD_REFUSED, refusal.message), world.now())
        log.warning("pod refused", agent=agent.metadata.name, pod=name, why=refusal.message)
        world.agent_queue.add(Key(namespace, agent.metadata.name))
        return False
    world.caches.pods.put(pod)
    if pod.owner_uid != agent.metadata.uid:
        problem = Problem(AgentReason.POD_REFUSED, f"a pod named {name} exists and isn't this Agent's")
        starts.note_refusal(problem, world.now())
        return False
    log.info("pod created", agent=agent.metadata.name, pod=name)
    world.agent_queue.add_after(Key(namespace, agent.metadata.name), again)
    return True


async def mark_pod(world: World, pod: PodView) -> None:
    """Writes on the pod since when it drains. The uid in the patch keeps it off another pod of that name."""
    log.info("pod drains", agent=pod.agent, pod=pod.name)
    since = world.now().isoformat(timespec="seconds")
    body = {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION_DRAINING: since}}}
    try:
        raw = await world.cluster.patch(PODS, pod.namespace, pod.name, body)
    except (kube.NotFound, kube.Conflict, kube.Invalid):
        log.debug("pod is gone", pod=pod.name)
        return
    world.caches.pods.put(pod_of(raw))
    world.agent_queue.add(Key(pod.namespace, pod.agent))


async def delete_pod(world: World, pod: PodView) -> None:
    """Asks the pod away; its grace time holds."""
    log.info("pod deleted", agent=pod.agent, pod=pod.name, phase=pod.phase)
    try:
        await world.cluster.delete(PODS, pod.namespace, pod.name, uid=pod.uid)
    except (kube.NotFound, kube.Conflict):
        log.debug("pod is gone", pod=pod.name)
