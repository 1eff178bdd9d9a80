"""Cache, slots, status patches, settings, probes: each by itself."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.operator.builders import NAMESPACE, NOW, THREAD, ago, run

from runyard_api.conditions import RunReason
from runyard_api.crd import Manifest, format_time
from runyard_api.internal import RunError
from runyard_api.run import Run
from runyard_api.states import RunState
from runyard_operator.cache import TOMBSTONES, Cache
from runyard_operator.probes import Health, serve
from runyard_operator.runs import status
from runyard_operator.runs.model import End
from runyard_operator.settings import Settings
from runyard_operator.slots import PodSlots, Waiting, least_loaded
from runyard_operator.workqueue import Key


def cache(*runs: Run) -> Cache[Run]:
    made: Cache[Run] = Cache({"thread": lambda one: one.thread_id, "pod": lambda one: one.status.pod_name})
    for one in runs:
        assert made.put(one)
    return made


def test_an_older_or_the_same_state_of_an_object_changes_nothing() -> None:
    seen = cache(run(version=5))
    assert not seen.put(run(version=4))
    assert not seen.put(run(version=5))
    assert seen.put(newer := run(version=10))
    assert seen.get(NAMESPACE, "r1") is newer


def test_an_echo_does_not_bring_a_deleted_object_back() -> None:
    seen = cache(run(version=5))
    assert seen.remove(NAMESPACE, "r1", "uid-r1") is not None
    assert not seen.put(run(version=6))
    assert seen.get(NAMESPACE, "r1") is None


def test_the_deletion_of_an_earlier_object_of_the_same_name_leaves_the_new_one() -> None:
    seen = cache(run())
    assert seen.remove(NAMESPACE, "r1", "uid-of-another") is None
    assert len(seen) == 1


def test_only_so_many_deletions_are_remembered() -> None:
    seen = cache()
    seen.remove(NAMESPACE, "r1", "uid-r1")
    for number in range(TOMBSTONES):
        seen.remove(NAMESPACE, "x", f"uid-{number}")
    assert seen.put(run())


def test_groups_follow_what_objects_say() -> None:
    seen = cache(run("r1"), run("r2", 2))
    assert {one.metadata.name for one in seen.group("thread", NAMESPACE, THREAD)} == {"r1", "r2"}
    assert seen.group("pod", NAMESPACE, "p") == []
    seen.put(run("r1", version=2, status={"podName": "p"}))
    assert [one.metadata.name for one in seen.group("pod", NAMESPACE, "p")] == ["r1"]
    seen.remove(NAMESPACE, "r1", "uid-r1")
    assert seen.group("pod", NAMESPACE, "p") == []
    assert [one.metadata.name for one in seen.group("thread", NAMESPACE, THREAD)] == ["r2"]


def test_a_list_shows_ghosts_but_not_objects_younger_than_it() -> None:
    seen = cache(run("old", version=5), run("young", 2, version=50), run("there", 3, version=5))
    assert [one.metadata.name for one in seen.absent_from(["uid-there"], 20)] == ["old"]


def test_slots_count_what_runs_and_what_is_reserved_once() -> None:
    slots = PodSlots(capacity=3, running={"a", "b"}, reserved={"b"})
    assert (slots.busy, slots.free) == (2, 1)
    slots.full = True
    assert slots.free == 0


def test_slots_are_bounded_by_what_a_pod_may_still_take() -> None:
    slots = PodSlots(capacity=10, running={"a"}, left=2)
    assert slots.free == 2
    slots.reserved.add("b")
    assert slots.free == 1
    slots.running.add("b")
    slots.took_one()
    slots.reserved.discard("b")
    assert (slots.free, slots.spent) == (1, False)
    slots.took_one()
    assert (slots.free, slots.spent) == (0, True)
    assert not PodSlots(capacity=1).spent


def test_slots_know_the_most_that_were_in_use_since_that_was_asked() -> None:
    slots = PodSlots(capacity=10)
    slots.reserve("a")
    slots.run("a")
    slots.reserve("b")
    slots.running.discard("a")
    slots.reserved.discard("b")
    assert [slots.take_most(), slots.take_most()] == [2, 0]


def test_a_queue_tells_when_it_grows_or_is_empty_and_when_each_began_to_wait() -> None:
    agent, first, second = Key("ns", "hello"), Key("ns", "1"), Key("ns", "2")
    times, told = iter([ago(5), ago(3)]), list[Key]()
    waiting = Waiting(now=lambda: next(times), changed=told.append)
    for thread in (first, second, first):
        waiting.join(agent, thread)
    assert (waiting.count(agent), waiting.since(agent, first), waiting.since(agent, second)) == (2, ago(5), ago(3))
    waiting.leave(agent, first)
    assert len(told) == 2
    waiting.leave(agent, second)
    assert (len(told), waiting.count(agent), waiting.since(agent, first)) == (3, 0, None)


def test_a_run_goes_to_the_pod_with_the_most_free_slots() -> None:
    pods = [("b", PodSlots(capacity=2)), ("a", PodSlots(capacity=2)), ("c", PodSlots(capacity=5, running={"x"}))]
    assert least_loaded(pods) == "c"
    assert least_loaded(pods[:2]) == "a"
    assert least_loaded([("d", PodSlots())]) is None


def test_threads_get_slots_in_the_order_in_which_they_began_to_wait() -> None:
    agent, first, second, late = Key("ns", "hello"), Key("ns", "1"), Key("ns", "2"), Key("ns", "3")
    waiting = Waiting(now=lambda: NOW, changed=lambda _: None)
    waiting.join(agent, first)
    waiting.join(agent, second)
    waiting.join(agent, first)
    assert waiting.front(agent, 1) == [first]
    assert waiting.front(agent, 5) == [first, second]
    assert waiting.may_take(agent, first, 1)
    assert not waiting.may_take(agent, second, 1)
    assert waiting.may_take(agent, second, 2)
    assert not waiting.may_take(agent, late, 2)
    waiting.leave(agent, first)
    waiting.leave(agent, second)
    assert waiting.may_take(agent, late, 1)
    assert not waiting.may_take(agent, late, 0)


def test_the_terminal_patch_says_when_how_long_and_whether_it_succeeded() -> None:
    patch = status.ended(run(), End(RunState.SUCCESS), started=ago(3.24), now=NOW)
    assert patch["state"] == "success"
    assert patch["duration"] == "3.2s"
    assert patch["completionTime"] == "2026-01-31T12:00:00Z"
    assert said(patch) == [("Admitted", "True", "Accepted"), ("Succeeded", "True", "Completed")]
    assert "error" not in patch


def test_a_run_that_never_began_has_no_duration() -> None:
    end = End(RunState.ERROR, RunError(error="UnknownAgent", message="no"), reason=RunReason.UNKNOWN_AGENT)
    patch = status.ended(run(), end, started=None, now=NOW)
    assert "duration" not in patch
    assert patch["error"] == {"error": "UnknownAgent", "message": "no"}
    assert patch["conditions"][1]["message"] == "no"


def test_long_errors_are_cut_to_what_the_schema_takes() -> None:
    end = End(RunState.ERROR, RunError(error="E" * 999, message="m" * 99_999))
    error = status.ended(run(), end, started=NOW, now=NOW)["error"]
    assert (len(error["error"]), len(error["message"])) == (256, 4096)


def test_conditions_follow_a_run_that_the_gateway_made() -> None:
    binding = status.Binding("hello-0", "nonce", "10.0.0.1:8123", 1)
    began = status.running(run(), binding, ago(5))
    assert said(began) == [("Admitted", "True", "Accepted"), ("Succeeded", "Unknown", "Running")]
    lost = status.unbound(run(status=began), 1, 0, NOW)
    assert said(lost) == [("Admitted", "True", "Accepted"), ("Succeeded", "Unknown", "Pending")]
    ended = status.ended(run(status=began), End(RunState.SUCCESS), started=ago(5), now=NOW)
    assert said(ended) == [("Admitted", "True", "Accepted"), ("Succeeded", "True", "Completed")]
    assert [c["lastTransitionTime"] for c in ended["conditions"]] == [format_time(ago(5)), format_time(NOW)]


def said(patch: Manifest) -> list[tuple[str, str, str]]:
    """The conditions of a patch, in short."""
    return [(c["type"], c["status"], c["reason"]) for c in patch["conditions"]]


def test_admission_keeps_other_conditions_and_refusal_ends_the_run() -> None:
    assert status.admitted(run(), 4, NOW)["sequence"] == 4
    patch = status.refused(run(), RunReason.THREAD_BUSY, "busy", NOW)
    assert patch["state"] == "error"
    assert {(c["type"], c["status"], c["reason"]) for c in patch["conditions"]} == {
        ("Admitted", "False", "ThreadBusy"),
        ("Succeeded", "False", "ThreadBusy"),
    }


def environment(tmp_path: Path, **changes: str) -> dict[str, str]:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    return {
        "RUNYARD_DATABASE_URL": "postgresql://x",
        "RUNYARD_AGENTS_NAMESPACE": "agents",
        "RUNYARD_TOKEN_KEY_FILE": str(key),
        "RUNYARD_AGENT_DATABASE_SECRET": "runyard-database",
    } | changes


def test_settings_have_defaults_for_what_is_not_required(tmp_path: Path) -> None:
    settings = Settings.from_environ(environment(tmp_path))
    assert (settings.token_key, settings.probe_port, settings.workers) == (b"k" * 32, 8080, 32)
    assert settings.env_secret_prefix == "runyard-env-"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"RUNYARD_DATABASE_URL": " "}, "RUNYARD_DATABASE_URL must be set"),
        ({"RUNYARD_WORKERS": "64"}, "RUNYARD_WORKERS must be a whole number from 8 to 32, not '64'"),
        ({"RUNYARD_PROBE_PORT": "http"}, "RUNYARD_PROBE_PORT must be a whole number from 1 to 65535, not 'http'"),
        (
            {"RUNYARD_TOKEN_KEY_FILE": "/nowhere"},
            "RUNYARD_TOKEN_KEY_FILE /nowhere can't be read: No such file or directory",
        ),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as told:
        Settings.from_environ(environment(tmp_path, **changes))
    assert str(told.value) == sentence


def test_a_short_token_key_is_refused(tmp_path: Path) -> None:
    given = environment(tmp_path)
    Path(given["RUNYARD_TOKEN_KEY_FILE"]).write_text("short")
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Settings.from_environ(given)


@pytest.mark.parametrize(
    ("health", "path", "code", "said"),
    [
        (Health(lambda: [("runs", 59)], lambda: [("runs", 0)], started=True), "/healthz", 200, "ok"),
        (Health(lambda: [("runs", 0)], lambda: [], started=True), "/readyz", 200, "ok"),
        (Health(lambda: [("runs", 0)], lambda: []), "/readyz", 503, "not every kind is listed yet"),
        (Health(lambda: [("runs", 0)], lambda: []), "/healthz", 200, "ok"),
        (Health(lambda: [("runs", 61)], lambda: [], started=True), "/healthz", 503, "queue runs: work waits for 61 s"),
        (Health(lambda: [], lambda: [("pods", 2)], started=True), "/healthz", 503, "watch of pods: missed 2 changes"),
        (Health(lambda: [], lambda: [], lag=6.0, started=True), "/healthz", 503, "event loop: 6.0 s late"),
        (Health(lambda: [], lambda: [], started=True), "/", 404, "only /healthz, /readyz and /metrics"),
    ],
)
async def test_probes(health: Health, path: str, code: int, said: str) -> None:
    server = await serve(health, 0, "127.0.0.1")
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith(f"HTTP/1.1 {code} ")
    assert said in answer
