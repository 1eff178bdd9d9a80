"""What a person may choose for `runyard dev`. Made by `main`; read by `serve` and `process`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What the person asked for. `host` None: loopback, and only requests that name it; `port` 0: a free one."""

    config: Path
    host: str | None
    port: int
    state: Path
    slots: int
    as_json: bool
