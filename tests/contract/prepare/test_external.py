"""Somebody else's PostgreSQL, reached by an owner's URL: what the chart's Jobs make of it, by their entry points.

The owner is no superuser: it owns one database and may create roles, as the owner of a hosted database may.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import errors, sql
from tests.support.postgres import PostgresServer, postgres_server

from runyard_api.names import PRINCIPALS
from runyard_kube.database_urls import DatabasePlace, database_secret
from runyard_kube.passwords import password

pytestmark = pytest.mark.postgres

PASSWORDS_ASKED = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


@dataclass(frozen=True)
class Release:
    """One release's access: the owner's URL and the data of the Secret that the keys Job makes of it."""

    owner_url: str
    secret: dict[str, str]

    def url(self, who: str) -> str:
        return self.secret[f"{who}-url"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        (running.data / "pg_hba.conf").write_text(PASSWORDS_ASKED)
        with psycopg.connect(running.url("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
        yield running


def new_owner(server: PostgresServer, name: str, *, rights: str = "CREATEROLE") -> str:
    """Makes a role and a database of its own, both called `name`, and returns the role's URL."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        role = sql.Identifier(name)
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'p@ss/word' NOSUPERUSER {}").format(role, sql.SQL(rights))
        connection.execute(made)
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(role, role))
    return f"postgresql://{name}:p%40ss%2Fword@127.0.0.1:{server.port}/{name}?application_name={name}"


def secret_of(owner_url: str, *, prefix: str = "runyard", existing: dict[str, str] | None = None) -> dict[str, str]:
    return database_secret(existing or {}, DatabasePlace("unused", owner_url=owner_url, role_prefix=prefix), password)


def migrate(secret: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs the migration Job's command with the environment that its pod has."""
    urls = {f"RUNYARD_{who.upper()}_URL": secret[f"{who}-url"] for who in PRINCIPALS}
    environ = {**os.environ, **urls, "RUNYARD_DATABASE_URL": secret["owner-url"], "RUNYARD_WAIT_SECONDS": "5"}
    command = [sys.executable, "-m", "runyard_store.prepare"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def release(server: PostgresServer) -> Release:
    owner_url = new_owner(server, "yard")
    found = Release(owner_url, secret_of(owner_url))
    for _ in range(2):  # each `helm upgrade` runs it again
        done = migrate(found.secret)
        assert done.returncode == 0, done.stderr
    return found


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_the_secret_holds_no_password_of_the_owner_but_its_url(release: Release) -> None:
    assert release.secret["owner-url"] == release.owner_url
    assert "owner-password" not in release.secret
    assert len({release.secret[f"{who}-password"] for who in PRINCIPALS}) == len(PRINCIPALS)


@pytest.mark.parametrize("who", PRINCIPALS)
def test_each_service_logs_in_by_its_own_password_and_works(release: Release, who: str) -> None:
    execute(release.url(who), "SELECT * FROM runs LIMIT 1 FOR UPDATE")
    wrong = release.url(who).replace(release.secret[f"{who}-password"], "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


@pytest.mark.parametrize("who", PRINCIPALS)
def test_the_options_of_the_owners_url_hold_for_all(release: Release, who: str) -> None:
    with psycopg.connect(release.url(who)) as connection:
        assert connection.execute("SHOW application_name").fetchone() == ("yard",)


@pytest.mark.parametrize("who", PRINCIPALS)
@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE mine (id int)", "CREATE ROLE mine", "DROP TABLE runs", "SET ROLE yard", "CREATE SCHEMA mine"],
)
def test_no_service_makes_tables_or_roles_or_becomes_the_owner(release: Release, who: str, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        execute(release.url(who), statement)


@pytest.mark.parametrize("who", ["operator", "runtime"])
def test_only_the_gateway_sees_api_keys(release: Release, who: str) -> None:
    execute(release.url("gateway"), "SELECT * FROM api_keys")
    with pytest.raises(errors.InsufficientPrivilege):
        execute(release.url(who), "SELECT * FROM api_keys")


def test_a_password_is_changed_by_removing_it_from_the_secret(release: Release) -> None:
    kept = {key: value for key, value in release.secret.items() if not key.startswith("gateway-")}
    changed = secret_of(release.owner_url, existing=kept)
    assert changed["runtime-password"] == release.secret["runtime-password"]
    with psycopg.connect(release.url("gateway"), autocommit=True) as running:
        assert migrate(changed).returncode == 0
        running.execute("SELECT 1")  # a pod that is connected goes on
    execute(changed["gateway-url"], "SELECT * FROM runs")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(release.url("gateway"))
    assert migrate(release.secret).returncode == 0


def test_two_releases_share_a_server_by_their_role_prefixes(server: PostgresServer, release: Release) -> None:
    other = secret_of(new_owner(server, "other"), prefix="team_b")
    assert migrate(other).returncode == 0
    execute(other["gateway-url"], "SELECT * FROM api_keys")
    elsewhere = other["gateway-url"].replace("/other?", "/yard?")
    with pytest.raises(errors.InsufficientPrivilege):
        execute(elsewhere, "SELECT * FROM api_keys")


def test_the_role_names_of_another_release_are_not_taken_over(server: PostgresServer, release: Release) -> None:
    done = migrate(secret_of(new_owner(server, "thief")))
    assert done.returncode == 1
    assert "runyard_gateway" in done.stderr
    assert "database.rolePrefix" in done.stderr
    execute(release.url("gateway"), "SELECT 1")


def test_an_owner_who_may_not_create_roles_is_told_so(server: PostgresServer) -> None:
    done = migrate(secret_of(new_owner(server, "weak", rights="NOCREATEROLE"), prefix="weak"))
    assert done.returncode == 1
    assert "may not create roles" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_wrong_password_of_the_owner_is_told_without_it(server: PostgresServer) -> None:
    url = new_owner(server, "locked").replace("p%40ss%2Fword", "t0psecret")
    done = migrate(secret_of(url, prefix="locked"))
    assert done.returncode == 1
    assert "password authentication failed" in done.stderr
    assert "t0psecret" not in done.stderr + done.stdout
