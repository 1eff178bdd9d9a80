"""Fixtures: a runtime over sqlite and over Postgres."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.runtime.harness import Pod, started_pod
from tests.support.databases import postgres, postgres_url, sqlite_template
from tests.support.databases import url as database_url

__all__ = ["database_url", "postgres", "postgres_url", "sqlite_template"]


@pytest.fixture
async def pod(database_url: str, tmp_path: Path) -> AsyncIterator[Pod]:
    async with asyncio.timeout(25), started_pod(database_url, tmp_path) as started:
        yield started
