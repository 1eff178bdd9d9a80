"""The chart's migration Job on a real PostgreSQL: schema, roles with their rights, the first API key; and again."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from tests.support.postgres import PostgresServer, postgres_server

from runyard_api.errors import Unavailable
from runyard_api.names import PRINCIPALS
from runyard_store.database import open_database
from runyard_store.keys import user_of_key
from runyard_store.keys_command import perform
from runyard_store.prepare import Settings, prepare, read_settings, wait_for_server

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def owner_url(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture(scope="module")
def settings(owner_url: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A prepared database, prepared twice: the second time changes nothing."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("ry_first\n")
    environ = {"RUNYARD_DATABASE_URL": owner_url, "RUNYARD_FIRST_KEY_FILE": str(key)}
    environ |= {f"RUNYARD_{who.upper()}_URL": url_as(owner_url, who) for who in PRINCIPALS}
    found = read_settings(environ)
    prepare(found)
    prepare(found)
    return found


CLOSED_STATEMENTS = [
    "CREATE TABLE mine (id int)",
    "ALTER TABLE runs ADD COLUMN x int",
    "UPDATE alembic_version SET version_num = ''",
]


def url_as(owner_url: str, who: str) -> str:
    return owner_url.replace("postgres@", f"runyard_{who}:pw-{who}@")


def run_as(owner_url: str, who: str, statement: str) -> None:
    with psycopg.connect(url_as(owner_url, who), autocommit=True) as connection:
        connection.execute(statement.encode())


async def test_the_first_key_is_known_and_belongs_to_the_default_user(settings: Settings, owner_url: str) -> None:
    database = await open_database(url_as(owner_url, "gateway"))
    try:
        assert await user_of_key(database, "ry_first") == "default"
        assert await user_of_key(database, "ry_other") is None
    finally:
        await database.close()


@pytest.mark.parametrize("who", PRINCIPALS)
@pytest.mark.parametrize("table", ["threads", "runs", "thread_leases", "event_batches", "checkpoints", "store"])
def test_every_service_works_on_threads_runs_and_checkpoints(
    settings: Settings, owner_url: str, who: str, table: str
) -> None:
    run_as(owner_url, who, f"SELECT * FROM {table} LIMIT 1 FOR UPDATE")
    run_as(owner_url, who, f"DELETE FROM {table} WHERE false")


@pytest.mark.parametrize("who", ["operator", "runtime"])
def test_only_the_gateway_sees_api_keys(settings: Settings, owner_url: str, who: str) -> None:
    run_as(owner_url, "gateway", "SELECT * FROM api_keys")
    with pytest.raises(errors.InsufficientPrivilege):
        run_as(owner_url, who, "SELECT * FROM api_keys")


def test_the_gateway_adds_and_ends_keys_but_never_changes_whose_they_are(settings: Settings, owner_url: str) -> None:
    gateway = url_as(owner_url, "gateway")
    (made,) = asyncio.run(perform(gateway, ["create", "--user=a", "--name=n", f"--hash={'0' * 64}"]))
    asyncio.run(perform(gateway, ["revoke", made["id"]]))
    for change in ("UPDATE api_keys SET user_id = 'b'", "UPDATE api_keys SET key_hash = ''", "DELETE FROM api_keys"):
        with pytest.raises(errors.InsufficientPrivilege):
            run_as(owner_url, "gateway", change)


def test_a_first_key_that_was_revoked_stays_so_when_the_job_runs_again(settings: Settings, owner_url: str) -> None:
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("UPDATE api_keys SET revoked_at = now() WHERE user_id = 'default'")
        prepare(settings)
        assert owner.execute("SELECT count(*) FROM api_keys WHERE revoked_at IS NULL").fetchone() == (0,)
        owner.execute("UPDATE api_keys SET revoked_at = NULL WHERE user_id = 'default'")


@pytest.mark.parametrize("who", PRINCIPALS)
@pytest.mark.parametrize("statement", CLOSED_STATEMENTS)
def test_no_service_changes_the_schema(settings: Settings, owner_url: str, who: str, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        run_as(owner_url, who, statement)


def test_a_new_password_is_set_on_the_next_run(settings: Settings, server: PostgresServer, owner_url: str) -> None:
    changed = tuple(replace(role, password="new") if role.principal == "runtime" else role for role in settings.roles)
    try:
        prepare(replace(settings, roles=changed))
        with psycopg.connect(owner_url) as connection:
            row = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'runyard_runtime'").fetchone()
        assert row is not None
        assert row[0].startswith("SCRAM-SHA-256")
    finally:
        prepare(settings)


def test_a_server_that_stays_away_is_named_after_the_wait() -> None:
    passed: list[float] = []
    with pytest.raises(Unavailable, match=r"didn't answer within 3 s.*refused"):
        wait_for_server("postgresql://127.0.0.1:1/none", 3, clock=lambda: float(len(passed)), sleep=passed.append)
    assert len(passed) == 3


def test_waiting_ends_when_the_server_comes(server: PostgresServer, owner_url: str) -> None:
    server.stop()
    began = time.monotonic()
    wait_for_server(owner_url, 20, sleep=lambda _: server.start())
    assert time.monotonic() - began < 20


COMPLETE = {
    "RUNYARD_DATABASE_URL": "postgresql://o@h/d",
    "RUNYARD_GATEWAY_URL": "postgresql://g:p@h/d",
    "RUNYARD_OPERATOR_URL": "postgresql://o:p@h/d",
    "RUNYARD_RUNTIME_URL": "postgresql://r:p@h/d",
}
WRONG = {
    "a missing URL": ({"RUNYARD_RUNTIME_URL": ""}, "RUNYARD_RUNTIME_URL is not set"),
    "a role without password": ({"RUNYARD_GATEWAY_URL": "postgresql://g@h/d"}, "gateway's database URL names no user"),
    "a wait that is no number": ({"RUNYARD_WAIT_SECONDS": "soon"}, "RUNYARD_WAIT_SECONDS must be a whole number"),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_wrong_setting_is_named(case: str) -> None:
    changed, reason = WRONG[case]
    with pytest.raises(ValueError, match=reason):
        read_settings(COMPLETE | changed)


def test_an_empty_key_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ValueError, match="RUNYARD_FIRST_KEY_FILE is empty"):
        read_settings(COMPLETE | {"RUNYARD_FIRST_KEY_FILE": str(tmp_path / "key")})
