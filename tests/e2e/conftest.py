"""`app` runs each scenario on both servers; `cluster` is the helm release itself.

When a test that uses the cluster fails, its report shows what the cluster looked like then.
"""

from collections.abc import AsyncIterator, Generator, Iterator

import pytest
from tests.e2e.diagnostics import describe
from tests.e2e.servers import App, Cluster, Server, connected, embedded, install

INSTALLED = pytest.StashKey[Cluster]()
DESCRIBED = pytest.StashKey[int]()
DESCRIBED_AT_MOST = 3  # failures; those that follow look the same and would bury the first


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with embedded(tmp_path_factory.mktemp("dev")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A new native cluster with Runyard installed. It stays up, to look at after a failure."""
    cluster = Cluster()
    install(cluster)
    request.session.stash[INSTALLED] = cluster
    return cluster


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the tests of a file there are the Agents again that were there before: others' tests need them alone."""
    yield
    if cluster := request.session.stash.get(INSTALLED, None):
        cluster.until_only_agents({"hello", "testgraphs"})


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the cluster's state to the report of a failure."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    described = item.session.stash.get(DESCRIBED, 0)
    if report.failed and isinstance(cluster, Cluster) and described < DESCRIBED_AT_MOST:
        item.session.stash[DESCRIBED] = described + 1
        report.sections.append(("the cluster", describe(cluster)))
    return report
