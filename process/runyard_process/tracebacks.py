"""An exception as text that may stand in a log: where it was raised and its class, without what it says. Called by
`logs`.

What an exception says is often what it was given (a validation error quotes the input). Ours and the system's say
nothing of the kind, so theirs is kept.
"""

import traceback

from structlog.typing import ExcInfo

from runyard_api.errors import RunyardError

MAX_FRAMES = 30
"""The innermost frames that are kept of each exception."""


def plain_traceback(exc_info: ExcInfo) -> str:
    """The exception and those that led to it, the first cause first, as Python prints them; sources aren't quoted."""
    parts: list[str] = []
    seen: set[int] = set()
    error: BaseException | None = exc_info[1]
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        parts.append(_one(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(reversed(parts))


def said(error: BaseException) -> str:
    """The error's class and, where that can't hold what a caller wrote, its text."""
    name = type(error).__name__
    if isinstance(error, RunyardError):
        return f"{name}: {error.detail}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return name


def _one(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    lines = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]
    inner = [_one(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return "\n".join([*lines, said(error), *inner])
