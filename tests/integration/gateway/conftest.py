"""The gateway on a real socket, with a real database and runtime: one for all tests of this folder."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from tests.integration.gateway.world import World, running_world
from tests.support.apiserver import api_server, kube, namespace

from runyard_store.database import Database, open_database
from runyard_store.migrate import migrate

__all__ = ["api_server", "kube", "namespace"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture
async def http(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Alice, without the SDK."""
    async with httpx.AsyncClient(base_url=world.url, headers={"x-api-key": world.alice}, timeout=20) as client:
        yield client


@pytest.fixture
async def sdk(world: World) -> AsyncIterator[LangGraphClient]:
    """Alice, with the official SDK."""
    async with get_client(url=world.url, api_key=world.alice) as client:
        yield client


@pytest.fixture
async def thread(sdk: LangGraphClient) -> str:
    """A new thread of Alice's."""
    return str((await sdk.threads.create())["thread_id"])


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """An empty database of this test's own."""
    url = f"sqlite:///{tmp_path / 'test.db'}"
    migrate(url)
    database = await open_database(url)
    yield database
    await database.close()
