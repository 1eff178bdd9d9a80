"""Fixtures: a migrated database for each test, on sqlite and on a PostgreSQL of the session. A folder's conftest.py
imports those it needs, with all that they stand on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres import PostgresServer, postgres_server

from runyard_store.migrate import migrate

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """One migrated database for all tests: each has threads of its own, and making one takes longer than most tests."""
    url = postgres.new_database()
    migrate(url)
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a migrated database; other tests may have left rows in it."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "runyard.db")
    return f"sqlite:///{tmp_path / 'runyard.db'}"
