"""Fixtures: a runtime over sqlite and over Postgres."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.runtime.harness import Pod, started_pod
from tests.support.postgres import postgres_server

from runyard_store.migrate import migrate


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One database for all tests: each works on threads of its own."""
    with postgres_server() as running:
        url = running.new_database()
        migrate(url)
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "runs.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "runs.db")
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def pod(database_url: str, tmp_path: Path) -> AsyncIterator[Pod]:
    async with asyncio.timeout(25), started_pod(database_url, tmp_path) as started:
        yield started
