"""`runyard-gateway`: reads the settings, opens what the application depends on, serves it until told to stop."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import uvicorn
import uvloop
from prometheus_client import start_http_server

from runyard_api.errors import RunyardError
from runyard_clients.runtime import pooled_http
from runyard_gateway.app import Deps, create_app
from runyard_gateway.cluster.kube_runs import Cluster, KubeRuns
from runyard_gateway.metrics import Metrics
from runyard_gateway.oidc import open_oidc
from runyard_gateway.protocol import BoundedProtocol
from runyard_gateway.settings import ServerSettings, read_environment
from runyard_kube.client import KubeClient
from runyard_process.environment import settings_or_exit
from runyard_process.garbage import spare_what_stays
from runyard_process.logs import configure_logs
from runyard_store.database import open_database

DATABASE_CONNECTIONS = 20
POOL_SECONDS, DATABASE_SECONDS = 3.0, 20.0
"""How long a request waits for a free connection, and for all that it does with it, before it is 503."""

SHUTDOWN_SECONDS = 20
IDLE_CONNECTION_SECONDS = 75  # longer than clients and load balancers keep one: they close it, never we while they send
"""How long requests that are no streams may take to end after a stop."""


class Server(uvicorn.Server):
    """A uvicorn that leaves signals to `stop_on_signals`: its own handling ends the process before the clean-up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def stop_on_signals(server: Server, stopping: asyncio.Event) -> None:
    """At SIGTERM or SIGINT no more requests are taken and open streams end; then `serve` returns."""

    def stop() -> None:
        stopping.set()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


@contextlib.contextmanager
def metrics_served(metrics: Metrics, port: int) -> Iterator[None]:
    """Answers scrapes on the port, in threads of their own, while the block lasts; 0: nowhere. Raises OSError."""
    if port == 0:
        yield
        return
    server, thread = start_http_server(port, registry=metrics.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Ends with one line on stderr when it can't start: with 2 for a setting that is missing or wrong, else with 1."""
    settings = settings_or_exit("runyard-gateway", read_environment)
    configure_logs(settings.logs)
    try:
        uvloop.run(serve(settings))
    except (ValueError, OSError, RunyardError) as error:
        sys.exit(f"runyard-gateway can't start: {error}")


async def serve(settings: ServerSettings) -> None:
    """Serves until SIGTERM or SIGINT. Raises ValueError for a database URL that can't be used."""
    async with AsyncExitStack() as stack:
        db = await open_database(
            settings.database_url,
            pool_size=DATABASE_CONNECTIONS,
            pool_seconds=POOL_SECONDS,
            patience=DATABASE_SECONDS,
        )
        stack.push_async_callback(db.close)
        http = await stack.enter_async_context(pooled_http())
        kube = await stack.enter_async_context(await KubeClient.open())
        runs = KubeRuns(
            Cluster(kube, http, db, settings.agents_namespace, settings.token_key, now=lambda: datetime.now(UTC))
        )
        runs.start()
        stack.push_async_callback(runs.stop)
        tokens = await stack.enter_async_context(open_oidc(settings.oidc))
        stopping = asyncio.Event()
        app = create_app(settings.app, Deps(db, runs, tokens=tokens, watch_ages=runs.watch_ages, stopping=stopping))
        stack.enter_context(metrics_served(app.state.metrics, settings.metrics_port))
        config = uvicorn.Config(
            app,
            host="0.0.0.0",
            port=settings.port,
            http=BoundedProtocol,
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            timeout_keep_alive=IDLE_CONNECTION_SECONDS,
        )
        server = Server(config)
        stop_on_signals(server, stopping)
        spare_what_stays()
        await server.serve()


if __name__ == "__main__":
    main()
