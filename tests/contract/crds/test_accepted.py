"""What the API server accepts, and what it fills in by itself."""

import orjson
import pytest
from tests.support.apiserver import ApiServer
from tests.support.manifests import agent, gateway_run, hand_written_run

from runyard_api.agent import Agent, AgentSpec
from runyard_api.crd import Manifest
from runyard_api.run import Run, RunSpec
from runyard_api.states import RunState
from runyard_kube.client import KubeClient
from runyard_kube.resources import AGENTS, RUNS

pytestmark = pytest.mark.apiserver

UUID = "0192f0c1-7a4e-7c1b-9d7e-3f2a1b4c5d6e"
FULL_AGENT = agent(
    "full",
    graphs={"agent": "./src/agent/graph.py:graph", "other": "package.module:make_graph"},
    slots=4,
    maxRunsPerPod=1,
    drainSeconds=0,
    replicas={"min": 0, "max": 2, "idleSeconds": 60},
    pendingDeadlineSeconds=30,
    podTemplate={
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [{"name": "LOG_LEVEL", "value": "debug"}, {"name": "EMPTY"}],
        "envFrom": [{"secretRef": {"name": "agent-model-keys"}}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    },
    runDefaults={
        "recursionLimit": 50,
        "activeDeadlineSeconds": 7200,
        "ttlSecondsAfterFinished": 60,
        "maxFailures": 1,
    },
)
FULL_RUN = hand_written_run(
    "full",
    graphId="agent",
    notBefore="2026-01-31T12:00:00Z",
    activeDeadlineSeconds=600,
    assistantId=UUID,
    threadId=UUID,
    userId="ann",
    payload={
        "input": {"messages": [{"role": "user", "content": "hi"}], "none": None},
        "command": {"update": [["a", 1]], "resume": {"approved": True}, "goto": "node"},
        "config": {"configurable": {"model": "x", "none": None}, "tags": ["a"]},
        "context": {"deep": {"er": [1, 2]}},
        "metadata": {"team": "a"},
    },
    streamMode=["Values", "Updates", "MessagesTuple"],
    multitaskStrategy="Rollback",
    onDisconnect="Cancel",
    durability="Sync",
    ttlSecondsAfterFinished=0,
    cancel={"action": "Interrupt", "reason": "enough"},
)


async def test_a_new_run_is_pending_without_any_patch(kube: KubeClient, namespace: str) -> None:
    created = await kube.create(RUNS, namespace, gateway_run(namespace))
    assert created["status"] == {"state": "pending"}
    read = await kube.get(RUNS, namespace, created["metadata"]["name"])
    assert Run.from_manifest(read).state is RunState.PENDING


async def test_a_run_made_by_the_gateway_comes_back_as_it_was_sent(kube: KubeClient, namespace: str) -> None:
    sent = gateway_run(namespace, sequence=7)
    read = Run.from_manifest(await kube.create(RUNS, namespace, sent))
    assert read.spec.to_json() == sent["spec"]
    assert (read.run_id, read.sequence, read.hand_written) == (sent["metadata"]["name"], 7, False)


async def test_user_json_of_a_hand_written_run_is_kept_untouched(kube: KubeClient, namespace: str) -> None:
    read = await kube.create(RUNS, namespace, FULL_RUN)
    assert read["spec"] == FULL_RUN["spec"]
    assert Run.from_manifest(read).spec == RunSpec.model_validate(FULL_RUN["spec"])


@pytest.mark.parametrize("given", ["text", 5, ["a", {"b": 1}], True, {"x": None}], ids=str)
async def test_the_input_of_a_graph_may_be_any_json(kube: KubeClient, namespace: str, given: object) -> None:
    read = await kube.create(RUNS, namespace, hand_written_run(payload={"input": given}))
    assert read["spec"]["payload"]["input"] == given


async def test_the_server_fills_in_the_defaults_of_the_models(kube: KubeClient, namespace: str) -> None:
    made_agent = Agent.from_manifest(await kube.create(AGENTS, namespace, agent()))
    assert made_agent.spec == AgentSpec(image="docker.io/example/hello:1")
    made_run = await kube.create(RUNS, namespace, hand_written_run())
    assert made_run["spec"] == RunSpec(agent_name="hello").to_json()


async def test_every_field_of_an_agent_is_accepted_and_kept(kube: KubeClient, namespace: str) -> None:
    read = await kube.create(AGENTS, namespace, FULL_AGENT)
    assert read["spec"] == FULL_AGENT["spec"]
    assert Agent.from_manifest(read).spec == AgentSpec.model_validate(FULL_AGENT["spec"])


async def test_the_spec_of_an_agent_may_change(kube: KubeClient, namespace: str) -> None:
    await kube.create(AGENTS, namespace, agent())
    changed = await kube.patch(AGENTS, namespace, "hello", {"spec": {"image": "other:2", "slots": 1}})
    assert (changed["spec"]["image"], changed["metadata"]["generation"]) == ("other:2", 2)


@pytest.mark.parametrize("manifest", [FULL_AGENT, FULL_RUN], ids=["Agent", "Run"])
def test_kubectl_apply_accepts_all_fields_in_its_strict_mode(
    api_server: ApiServer, namespace: str, manifest: Manifest
) -> None:
    text = orjson.dumps(manifest).decode()
    assert "created" in api_server.kubectl("-n", namespace, "apply", "-f", "-", stdin=text)
    assert "unchanged" in api_server.kubectl("-n", namespace, "apply", "-f", "-", stdin=text)
