"""Which lines of a traceback a person at the console wants to see: those of the project. Called by `report`."""

import traceback

LIBRARIES = ("/site-packages/", "/lib/python3", "<frozen ")


def shown_frames(told: traceback.TracebackException) -> None:
    """Takes the frames of libraries, Python and Runyard out, of this exception and of all that led to it; one that has
    no others keeps them."""
    seen: set[int] = set()
    open_ones: list[traceback.TracebackException | None] = [told]
    while open_ones:
        one = open_ones.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if kept := [frame for frame in one.stack if not _is_library(frame.filename)]:
            one.stack = traceback.StackSummary.from_list(kept)
        open_ones += [one.__cause__, one.__context__, *(one.exceptions or ())]


def _is_library(filename: str) -> bool:
    return any(part in filename for part in LIBRARIES) or "/runyard_" in filename
