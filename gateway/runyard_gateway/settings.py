"""The gateway's settings: what the application needs (Settings), and what the process needs around it (see environment)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """`auth` "none" makes every caller the user "default"; origins as in CORS, `*` for any; the heartbeat in seconds."""

    auth: Literal["api-key", "none"] = "api-key"
    cors_origins: tuple[str, ...] = ("*",)
    heartbeat_seconds: float = 5.0
