"""Work that is done again and again for as long as the process lives. Used by app.py and the cluster's KubeRuns."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from runyard_api.errors import RunyardError

log = structlog.get_logger(__name__)


async def repeat(work: Callable[[], Awaitable[object]], *, seconds: float, what: str) -> None:
    """Does the work until it is cancelled, with a pause of so many seconds; what fails is logged and done next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except RunyardError as error:
            log.warning("work stopped early", what=what, reason=error.detail)
        except Exception:
            log.exception("work broke", what=what)
