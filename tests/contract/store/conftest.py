"""Databases for the store's tests: one suite, run on sqlite and on Postgres."""

from collections.abc import AsyncIterator

import pytest
from tests.support.databases import postgres, postgres_url, sqlite_template, url

from runyard_store.database import Database, open_database

__all__ = ["postgres", "postgres_url", "sqlite_template", "url"]


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    database = await open_database(url)
    yield database
    await database.close()
