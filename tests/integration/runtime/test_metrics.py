"""What a pod tells Prometheus: asked over HTTP, without a token, while runs go through it."""

from tests.integration.runtime.harness import Pod

from runyard_api.states import CancelAction
from runyard_clients.runtime import socket_http

P = "runyard_runtime_"


async def _told(pod: Pod) -> dict[str, float]:
    """The runtime's own samples, labels as they are written."""
    async with socket_http(str(pod.socket)) as http, http.get("http://runtime/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        lines = (await answer.text()).splitlines()
    samples = (line.rpartition(" ") for line in lines if line.startswith(P))
    return {name.removeprefix(P): float(number) for name, _, number in samples}


async def test_attempts_are_counted_by_how_they_end_and_slots_are_the_present_ones(pod: Pod) -> None:
    await pod.run("failing", input={"log": []})
    sleeping = await pod.create("sleeper", input={"log": []})
    await pod.start(sleeping)
    told = await _told(pod)
    assert (told["slots"], told["slots_busy"]) == (pod.settings.slots, 1)
    await pod.client.cancel(sleeping.run_id, CancelAction.INTERRUPT)
    await pod.over(sleeping)
    told = await _told(pod)
    assert told['attempts_started_total{resumed="false"}'] == 2
    assert told['attempts_ended_total{state="error"}'] == 1
    assert told['attempts_ended_total{state="interrupted"}'] == 1
    assert told["slots_busy"] == 0
    assert told["checkpoint_errors_total"] == 0
    assert sleeping.run_id not in str(told)


async def test_events_are_counted_in_the_batches_that_are_logged(pod: Pod) -> None:
    await pod.run("sync_sleeper", input={"log": []}, stream_mode=["custom"])
    told = await _told(pod)
    assert 0 < told["event_batches_total"] <= told["events_total"]
