"""`app` runs each scenario on both servers; `cluster` is the helm release itself."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.e2e.servers import App, Cluster, Server, connected, embedded, install


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with embedded(tmp_path_factory.mktemp("dev")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A new native cluster with Runyard installed. It stays up, to look at after a failure."""
    cluster = Cluster()
    install(cluster)
    return cluster


@pytest.fixture(scope="session")
def cluster_server(cluster: Cluster) -> Server:
    return cluster.server()


@pytest.fixture(params=["embedded", pytest.param("cluster", marks=pytest.mark.cluster)])
def any_server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
async def app(any_server: Server) -> AsyncIterator[App]:
    async with connected(any_server) as app:
        yield app


@pytest.fixture
async def cluster_app(cluster_server: Server) -> AsyncIterator[App]:
    async with connected(cluster_server) as app:
        yield app
