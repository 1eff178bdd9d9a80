"""An agent pod as a process on a loopback address of its own: `python pod.py ADDRESS`, settings as in a container.

`runyard-runtime` listens on all addresses, which on one machine only one pod could.
"""

import asyncio
import signal
import sys

from runyard_process.environment import settings_or_exit
from runyard_process.logs import configure_logs
from runyard_runtime.runtime import start_runtime
from runyard_runtime.serve import serve
from runyard_runtime.settings import Settings, settings_from_env
from runyard_store.database import open_database


async def run(settings: Settings, address: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    db = await open_database(settings.database_url, settings.pool_size)
    runtime = await start_runtime(settings, db)
    server = await serve(runtime.app, port=settings.port, host=address)
    print("ready", flush=True)
    await stopped.wait()
    await runtime.drain(0)
    await runtime.stop()
    await server.stop()
    await db.close()


if __name__ == "__main__":
    given = settings_or_exit("pod", settings_from_env)
    configure_logs(given.logs)
    asyncio.run(run(given, sys.argv[1]))
