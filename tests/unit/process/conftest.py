"""Each test that sets up logging does so in a process whose logging is put back afterwards."""

import logging
import sys
import threading
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hooks = list(root.handlers), root.level, (sys.excepthook, threading.excepthook)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, threading.excepthook = hooks
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()
