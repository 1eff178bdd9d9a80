"""Fixtures: one API server and one PostgreSQL per session; per module a namespace with operator and kubelet."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from tests.integration.operator.harness import KEY, OperatorProcess, Place
from tests.integration.operator.kubelet import Kubelet
from tests.integration.operator.rights import operator_kubeconfig
from tests.support.apiserver import ApiServer, api_server
from tests.support.postgres import PostgresServer, postgres_server

from runyard_kube.client import KubeClient
from runyard_store.database import open_database
from runyard_store.migrate import migrate

__all__ = ["api_server"]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    api_server: ApiServer, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    """A namespace in which an operator is ready and pods come alive."""
    folder = tmp_path_factory.mktemp("place")
    key = folder / "token-key"
    key.write_text(KEY)
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    api_server.kubectl("create", "namespace", namespace)
    database_url = server.new_database()
    migrate(database_url)
    environment = {
        "KUBECONFIG": str(operator_kubeconfig(api_server, namespace, folder)),
        "RUNYARD_DATABASE_URL": database_url,
        "RUNYARD_AGENTS_NAMESPACE": namespace,
        "RUNYARD_TOKEN_KEY_FILE": str(key),
        "RUNYARD_AGENT_DATABASE_SECRET": "runyard-database",
        "RUNYARD_UNKNOWN_AGENT_SECONDS": "1",
    }
    operator = OperatorProcess(environment, folder / "operator.log")
    db = await open_database(database_url, 4)
    async with await KubeClient.open(api_server.kubeconfig) as kube:
        made = Place(kube, namespace, db, operator, Kubelet(kube, namespace, database_url), folder)
        try:
            await made.open()
            yield made
        finally:
            await operator.stop()
            await made.kubelet.stop()
            await db.close()
            print((folder / "operator.log").read_text()[-8000:])
