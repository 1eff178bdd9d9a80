"""Why a start failed, left where the operator looks for it: the container's termination message. Called by `launch` and
`__main__`."""

import sys
from pathlib import Path

import orjson

LOG = "/dev/termination-log"
MESSAGE_LIMIT = 1000


def leave_reason(log: Path | None, reason: str, message: str) -> None:
    """Writes {"reason", "message"} and says it on stderr; `log` None: only there."""
    print(f"{reason}: {message}", file=sys.stderr)
    if log is None:
        return
    try:
        log.write_bytes(orjson.dumps({"reason": reason, "message": message[:MESSAGE_LIMIT]}))
    except OSError as error:
        print(f"no termination message: {error.strerror}", file=sys.stderr)
