"""What the API server refuses, each time naming the field to the person who applied it."""

import orjson
import pytest
from tests.support.apiserver import ApiServer
from tests.support.manifests import REMOVED, agent, edited, gateway_run, hand_written_run

from runyard_api.crd import Manifest
from runyard_kube.client import KubeClient
from runyard_kube.errors import Invalid
from runyard_kube.resources import AGENTS, RUNS

pytestmark = pytest.mark.apiserver

RUN_CASES = [
    ("no agent", "spec.agentName", REMOVED, "spec.agentName: Required value"),
    ("an empty agent", "spec.agentName", "", "spec.agentName"),
    ("an agent that can't be one", "spec.agentName", "Hello_1", "spec.agentName: Invalid value: "),
    ("an agent's name over 40 characters", "spec.agentName", "a" * 41, "spec.agentName: Too long"),
    ("an empty graph", "spec.graphId", "", "spec.graphId"),
    (
        "a thread that isn't a UUID",
        "spec.threadId",
        "t-1",
        'spec.threadId: Invalid value: "t-1": must be a lower-case UUID',
    ),
    ("a thread in upper case", "spec.threadId", "0192F0C1-7A4E-7C1B-9D7E-3F2A1B4C5D6E", "spec.threadId"),
    ("an assistant that isn't a UUID", "spec.assistantId", "agent", "spec.assistantId: Invalid value"),
    ("an empty user", "spec.userId", "", "spec.userId"),
    ("a sequence of zero", "spec.sequence", 0, "spec.sequence: Invalid value: 0"),
    ("a sequence without a thread", "spec.sequence", 1, "spec.threadId: Invalid value: is needed beside sequence"),
    ("a strategy in the API's spelling", "spec.multitaskStrategy", "enqueue", 'supported values: "Enqueue", "Reject"'),
    ("an unknown stream mode", "spec.streamMode", ["Value"], 'spec.streamMode[0]: Unsupported value: "Value"'),
    ("no stream mode", "spec.streamMode", [], "spec.streamMode"),
    ("a stream mode twice", "spec.streamMode", ["Values", "Values"], "spec.streamMode[1]: Duplicate value"),
    ("an unknown disconnect mode", "spec.onDisconnect", "Stop", "spec.onDisconnect: Unsupported value"),
    ("an unknown durability", "spec.durability", "Never", "spec.durability: Unsupported value"),
    ("a negative time to live", "spec.ttlSecondsAfterFinished", -1, "spec.ttlSecondsAfterFinished"),
    ("a time to live over 32 bits", "spec.ttlSecondsAfterFinished", 2**31, "spec.ttlSecondsAfterFinished"),
    ("a config that isn't an object", "spec.payload.config", ["a"], "spec.payload.config"),
    (
        "too many metadata keys",
        "spec.payload.metadata",
        {str(n): n for n in range(65)},
        "spec.payload.metadata: Too many",
    ),
    ("a cancel without an action", "spec.cancel", {"reason": "x"}, "spec.cancel.action: Required value"),
    ("an unknown cancel action", "spec.cancel", {"action": "Stop"}, "spec.cancel.action: Unsupported value"),
    (
        "a cancel reason over 256 characters",
        "spec.cancel",
        {"action": "Interrupt", "reason": "x" * 257},
        "spec.cancel.reason",
    ),
    ("no spec", "spec", REMOVED, "spec: Required value"),
]
AGENT_CASES = [
    ("no image", "spec.image", REMOVED, "spec.image: Required value"),
    ("an empty image", "spec.image", "", "spec.image"),
    ("an image with a space", "spec.image", "a b", 'spec.image: Invalid value: "a b": must not hold spaces'),
    ("no graph at all", "spec.graphs", {}, "spec.graphs"),
    ("a graph without an id", "spec.graphs", {"": "a:b"}, "graph ids must not be empty"),
    ("a graph id with a slash", "spec.graphs", {"a/b": "a:b"}, "spec.graphs: Invalid value: graph ids"),
    ("a graph without a variable", "spec.graphs", {"a": "./a.py"}, "must be path:variable"),
    ("no slots", "spec.slots", 0, "spec.slots: Invalid value: 0"),
    ("slots as text", "spec.slots", "10", "spec.slots"),
    (
        "more replicas at least than at most",
        "spec.replicas",
        {"min": 3, "max": 2},
        "spec.replicas.max: Invalid value: must be at least min",
    ),
    ("more replicas at least than the default at most", "spec.replicas", {"min": 2}, "must be at least min"),
    ("never a replica", "spec.replicas", {"min": 0, "max": 0}, "spec.replicas.max"),
    ("too many replicas", "spec.replicas", {"min": 0, "max": 101}, "spec.replicas.max"),
    ("no time to idle", "spec.replicas", {"idleSeconds": 0}, "spec.replicas.idleSeconds"),
    ("less than no runs per pod", "spec.maxRunsPerPod", -1, "spec.maxRunsPerPod"),
    ("less than no time to drain", "spec.drainSeconds", -1, "spec.drainSeconds"),
    ("no time to start", "spec.pendingDeadlineSeconds", 0, "spec.pendingDeadlineSeconds"),
    ("an unknown pull policy", "spec.podTemplate.imagePullPolicy", "Sometimes", "spec.podTemplate.imagePullPolicy"),
    ("a variable of Runyard", "spec.podTemplate.env", [{"name": "RUNYARD_SLOTS"}], "must not begin with RUNYARD_"),
    ("a variable that can't be one", "spec.podTemplate.env", [{"name": "A-B"}], "spec.podTemplate.env[0].name"),
    (
        "a variable twice",
        "spec.podTemplate.env",
        [{"name": "A"}, {"name": "A"}],
        "spec.podTemplate.env[1]: Duplicate value",
    ),
    (
        "a source that isn't a Secret",
        "spec.podTemplate.envFrom",
        [{"configMapRef": {"name": "x"}}],
        "envFrom[0].secretRef",
    ),
    ("an unknown toleration effect", "spec.podTemplate.tolerations", [{"effect": "None"}], "tolerations[0].effect"),
    ("no steps", "spec.runDefaults.recursionLimit", 0, "spec.runDefaults.recursionLimit"),
    ("no failure allowed", "spec.runDefaults.maxFailures", 0, "spec.runDefaults.maxFailures"),
    ("a name over 40 characters", "metadata.name", "a" * 41, "at most 40 characters"),
    ("a name with a dot", "metadata.name", "a.b", "must not hold a dot"),
]


def _named(cases: list[tuple[str, str, object, str]]) -> dict[str, object]:
    return {"argvalues": [case[1:] for case in cases], "ids": [case[0] for case in cases]}


@pytest.mark.parametrize(("path", "value", "said"), **_named(RUN_CASES))  # type: ignore[arg-type]
async def test_a_run_is_refused_with(kube: KubeClient, namespace: str, path: str, value: object, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.create(RUNS, namespace, edited(hand_written_run(), path, value))
    assert said in refused.value.message


@pytest.mark.parametrize(("path", "value", "said"), **_named(AGENT_CASES))  # type: ignore[arg-type]
async def test_an_agent_is_refused_with(kube: KubeClient, namespace: str, path: str, value: object, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        await kube.create(AGENTS, namespace, edited(agent(), path, value))
    assert said in refused.value.message


async def test_a_run_that_the_gateway_has_stored_carries_no_payload(kube: KubeClient, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.payload: Invalid value: is for Runs without a sequence"):
        await kube.create(RUNS, namespace, edited(gateway_run(namespace), "spec.payload.input", "x"))


@pytest.mark.parametrize(
    ("manifest", "path", "field"),
    [
        (agent(), "spec.replica", "spec.replica"),
        (agent(), "spec.podTemplate.serviceAccountName", "spec.podTemplate.serviceAccountName"),
        (hand_written_run(), "spec.treadId", "spec.treadId"),
        (hand_written_run(), "spec.payload.inputs", "spec.payload.inputs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kubectl_apply_refuses_an_unknown_field(
    api_server: ApiServer, namespace: str, manifest: Manifest, path: str, field: str
) -> None:
    text = orjson.dumps(edited(manifest, path, "x")).decode()
    done = api_server.try_kubectl("-n", namespace, "apply", "-f", "-", stdin=text)
    assert done.returncode == 1
    assert f'unknown field "{field}"' in done.stderr
