"""The store's pure parts: URLs, the pre-run point's JSON, fork points, clock times of checkpoints, resting threads."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from langgraph.checkpoint.base.id import uuid6

from runyard_api.states import ThreadState
from runyard_store.pre_run import PreRun, checkpoint_ms, fork_point
from runyard_store.rows import ThreadRow, resting_status
from runyard_store.urls import parse_url, sqlite_url


def test_a_postgres_url_gets_our_driver_and_keeps_its_options() -> None:
    parsed = parse_url("postgresql://u:p%40ss@db:5433/name?sslmode=require")
    assert parsed.kind == "postgresql"
    assert parsed.async_url.drivername == "postgresql+psycopg"
    assert parsed.async_url.password == "p@ss"
    assert parsed.conninfo == "postgresql://u:p%40ss@db:5433/name?sslmode=require"


def test_a_sqlite_url_names_a_file() -> None:
    parsed = parse_url("sqlite:////tmp/x.db")
    assert (parsed.kind, str(parsed.path)) == ("sqlite", "/tmp/x.db")
    assert parsed.async_url.drivername == "sqlite+aiosqlite"


@pytest.mark.parametrize("path", ["/a/x.db", "/what?/x.db", "/a#b/x.db", "/100%41/x y.db", "/ä:@&=+/x.db", "//a/x.db"])
def test_any_path_of_a_sqlite_file_survives_its_url(path: str) -> None:
    parsed = parse_url(sqlite_url(Path(path)))
    assert parsed.path == Path(path)
    assert parsed.async_url.database == parsed.sync_url.database == str(Path(path))
    assert not parsed.async_url.query


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///relative.db", "absolute path"),
        ("sqlite://", "absolute path"),
        ("mysql://u:hunter2@h/d", "allowed are postgresql and sqlite"),
        ("not a url hunter2", "can't be parsed"),
        ("", "can't be parsed"),
    ],
)
def test_another_url_is_refused_in_one_sentence_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        parse_url(url)
    assert "hunter2" not in str(refused.value)


def test_a_pre_run_point_survives_json() -> None:
    point = PreRun("c", "b", None, (("ns", "b", "t", "~p", -3, "__interrupt__", "msgpack", b"\x00\xff"),))
    assert PreRun.from_json(orjson.loads(orjson.dumps(point.to_json()))) == point
    assert PreRun.from_json(None) == PreRun()


@pytest.mark.parametrize(
    ("payload", "want"),
    [
        ({}, None),
        ({"checkpoint": None, "config": {"configurable": None}}, None),
        ({"checkpoint": {"checkpoint_id": "b", "checkpoint_ns": ""}}, "b"),
        ({"config": {"configurable": {"checkpoint_id": "b"}}}, "b"),
        ({"checkpoint": {"checkpoint_id": "b", "checkpoint_map": {"": "a", "sub:1": "b"}}}, "a"),
        ({"checkpoint": {"checkpoint_id": 7}}, None),
        ({"config": {"configurable": 7}}, None),
        ({"config": {"configurable": {"checkpoint_id": "b", "checkpoint_map": 7}}}, "b"),
    ],
)
def test_fork_point(payload: dict[str, Any], want: str | None) -> None:
    assert fork_point(payload) == want


def test_a_checkpoint_id_tells_its_clock_time() -> None:
    before = int(time.time() * 1000)
    told = checkpoint_ms(str(uuid6()))
    assert told is not None
    assert before - 1 <= told <= int(time.time() * 1000) + 1


@pytest.mark.parametrize("other", [None, "", "x", "0192e4a0-0000-7000-8000-000000000000", "not-hex" * 5])
def test_another_id_tells_no_time(other: str | None) -> None:
    assert checkpoint_ms(other) is None


@pytest.mark.parametrize(
    ("error", "interrupts", "head", "want"),
    [
        (None, {}, None, ThreadState.IDLE),
        (None, {}, {"next": []}, ThreadState.IDLE),
        (None, {}, {"next": ["ask"]}, ThreadState.INTERRUPTED),
        (None, {"task": [{}]}, {"next": []}, ThreadState.INTERRUPTED),
        ({"error": "E", "message": "m"}, {"task": [{}]}, None, ThreadState.ERROR),
    ],
)
def test_resting_status(error: Any, interrupts: Any, head: Any, want: ThreadState) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    thread = ThreadRow(
        thread_id="t",
        user_id="u",
        created_at=now,
        updated_at=now,
        state_updated_at=None,
        metadata={},
        config={},
        status=ThreadState.BUSY,
        values=None,
        interrupts=interrupts,
        error=error,
        head=head,
        graph_id=None,
        run_seq=1,
        unfinished=1,
    )
    assert resting_status(thread) is want
