"""Wakes an Agent that has no pod up: writes on it that a request needs its graph code. Used by kube_runs.py."""

from collections.abc import Callable
from datetime import datetime, timedelta

from runyard_api.errors import NotFound
from runyard_api.names import ANNOTATION_WANTED_AT
from runyard_kube import errors as kube_errors
from runyard_kube.client import KubeClient
from runyard_kube.resources import AGENTS

AGAIN_AFTER = timedelta(seconds=5)
"""The operator starts a pod for one mark; many requests at once are one mark."""


class Waker:
    """When each Agent was last told by this gateway."""

    def __init__(self, kube: KubeClient, namespace: str, now: Callable[[], datetime]) -> None:
        self._kube, self._namespace, self._now = kube, namespace, now
        self._told: dict[str, datetime] = {}

    async def wake(self, agent_name: str) -> None:
        """Asks for a pod, unless that was done a moment ago. Raises NotFound for no such Agent, Unavailable."""
        now = self._now()
        if now - self._told.get(agent_name, now - AGAIN_AFTER) < AGAIN_AFTER:
            return
        self._told[agent_name] = now
        mark = {"metadata": {"annotations": {ANNOTATION_WANTED_AT: now.isoformat(timespec="seconds")}}}
        try:
            await self._kube.patch(AGENTS, self._namespace, agent_name, mark)
        except kube_errors.NotFound as error:
            del self._told[agent_name]
            raise NotFound(f"Agent {agent_name} not found.") from error
        except kube_errors.KubeError:
            del self._told[agent_name]
            raise
