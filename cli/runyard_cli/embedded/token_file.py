"""The token of a state folder: made once, kept in `<state>/token`, readable by its owner alone. Called by `process`."""

import os
import secrets
import stat
from pathlib import Path

from runyard_cli.failure import CommandError

NAME = "token"


def state_token(state: Path) -> str:
    """The folder's token, made if there is none. Raises CommandError when others can read the file, or nobody can."""
    path = state / NAME
    try:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return _kept(path)
        with os.fdopen(fd, "w") as file:
            token = secrets.token_urlsafe(32)
            file.write(f"{token}\n")
        return token
    except OSError as error:
        raise CommandError(f"The token's file {path} can't be used: {error.strerror}.") from error


def _kept(path: Path) -> str:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CommandError(f"Others can read the token in {path}; delete the file, then a new token is made.")
    token = path.read_text().strip()
    if not token.isascii() or len(token) < 32:
        raise CommandError(f"{path} holds no token of at least 32 characters; delete the file, then a new one is made.")
    return token
