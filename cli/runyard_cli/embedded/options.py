"""What a person may choose for `runyard dev`. Made by `main`; read by `serve` and `process`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Detail = Literal["quiet", "normal", "verbose"]


@dataclass(frozen=True)
class Options:
    """What the person asked for. `port` 0: a free one. `token`: callers must send it, also on the loopback.
    `allow_hosts` and `allow_origins`: beside those of the loopback. `detail`: how much is printed."""

    config: Path
    host: str
    port: int
    state: Path
    slots: int
    as_json: bool = False
    token: bool = False
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    detail: Detail = "normal"
