"""The process of an agent pod, started by `launch`: reads settings, starts the runtime, serves till SIGTERM, drains."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import uvloop

from runyard_api.errors import Unavailable
from runyard_process.environment import settings_or_exit
from runyard_process.garbage import spare_what_stays
from runyard_process.logs import configure_logs
from runyard_runtime.project import ProjectError
from runyard_runtime.runtime import Runtime, start_runtime
from runyard_runtime.serve import serve
from runyard_runtime.settings import Settings, settings_from_env
from runyard_runtime.termination import leave_reason
from runyard_store.database import open_database
from runyard_store.migrate import require_schema

_T = TypeVar("_T")
_DATABASE_PATIENCE_SECONDS = 60.0
_log = structlog.get_logger(__name__)


def main() -> None:
    """Runs the runtime; ends with 1 and one line on stderr when it can't start."""
    settings = settings_or_exit("runyard-runtime", settings_from_env)
    configure_logs(settings.logs)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run(settings))
        sys.stderr.flush()
        sys.stdout.flush()
        # Not sys.exit: it would wait for threads of sync graph code, which nothing can stop.
        os._exit(code)


async def run(settings: Settings) -> int:
    """Starts, serves and drains; the exit code: 1 when the start failed, with the reason in the termination message."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        db = await open_database(settings.database_url, settings.pool_size)
    except (ValueError, Unavailable) as error:
        return _failed(settings, "DatabaseUnavailable", str(error))
    try:
        await _patiently(lambda: require_schema(db))
        runtime = await start_runtime(settings, db)
        await _serve(settings, runtime, stopped)
    except ProjectError as error:
        return _failed(settings, error.reason, str(error))
    except Unavailable as error:
        return _failed(settings, "DatabaseUnavailable", error.detail)
    finally:
        await db.close()
    return 0


async def _serve(settings: Settings, runtime: Runtime, stopped: asyncio.Event) -> None:
    server = await serve(runtime.app, port=settings.port)
    _log.info("runtime ready", port=settings.port, slots=settings.slots, boot_id=runtime.boot_id)
    spare_what_stays()
    await stopped.wait()
    _log.info("runtime drains")
    await runtime.drain()
    await runtime.stop()
    await server.stop()


async def _patiently(call: Callable[[], Awaitable[_T]]) -> _T:
    """Tries again while the database doesn't answer or isn't migrated yet, for a minute. Raises Unavailable."""
    until = asyncio.get_running_loop().time() + _DATABASE_PATIENCE_SECONDS
    while True:
        try:
            return await call()
        except Unavailable as error:
            if asyncio.get_running_loop().time() >= until:
                raise
            _log.warning("runtime waits for the database", error=error.detail)
        await asyncio.sleep(1.0)


def _failed(settings: Settings, reason: str, message: str) -> int:
    leave_reason(settings.termination_log, reason, message)
    return 1


if __name__ == "__main__":
    main()
