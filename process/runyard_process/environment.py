"""Settings from environment variables, read and checked one way. Called by the `settings` module of each service and
by its `__main__`.

A value that is missing, unknown or out of range raises BadSetting: one line that names the variable. Variables that
hold secrets (URLs, tokens) aren't quoted in it.
"""

import difflib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

PREFIX = "RUNYARD_"
MIN_KEY_BYTES = 32
LOOKS_LIKE = 0.9
"""How alike a name must be to one of ours to be a misspelling of it: a letter or two."""

_T = TypeVar("_T")


class BadSetting(ValueError):
    """A setting is missing or wrong; the text is one line that names the variable."""


class Environment:
    """The variables of one process. It remembers which were asked for: see `refuse_misspelled`. An empty or blank
    variable counts as one that isn't set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._asked: set[str] = set()

    def optional(self, name: str) -> str | None:
        """The value without spaces around it; None when it isn't set."""
        self._asked.add(name)
        return self._environ.get(name, "").strip() or None

    def text(self, name: str, default: str) -> str:
        """The value, or the default."""
        return self.optional(name) or default

    def required(self, name: str) -> str:
        """The value. Raises BadSetting without one."""
        if value := self.optional(name):
            return value
        raise BadSetting(f"{name} must be set")

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        text = self.optional(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or not low <= int(text[:20]) <= high:
            raise BadSetting(f"{name} must be a whole number from {low} to {high}, not {text[:40]!r}")
        return int(text)

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        text = self.optional(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise BadSetting(f"{name} must be a number from {low:g} to {high:g}, not {text[:40]!r}")
        return value

    def choice(self, name: str, default: _T, choices: Mapping[str, _T]) -> _T:
        """What `choices` has for the value."""
        text = self.optional(name)
        if text is None:
            return default
        if text not in choices:
            allowed = list(choices)
            words = " or ".join([", ".join(allowed[:-1]), allowed[-1]]) if len(allowed) > 1 else allowed[0]
            raise BadSetting(f"{name} must be {words}, not {text[:40]!r}")
        return choices[text]

    def listed(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Parts separated by commas, without spaces around them. Raises BadSetting for commas alone."""
        text = self.optional(name)
        if text is None:
            return default
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if not parts:
            raise BadSetting(f"{name} must hold values separated by commas")
        return parts

    def key_file(self, name: str) -> bytes:
        """What the file that the variable names holds, without white space around it: at least 32 bytes."""
        path = self.required(name)
        try:
            key = Path(path).read_bytes().strip()
        except OSError as error:
            raise BadSetting(f"{name} {path} can't be read: {error.strerror}") from error
        if len(key) < MIN_KEY_BYTES:
            raise BadSetting(f"{name} {path} must hold at least {MIN_KEY_BYTES} bytes")
        return key

    def refuse_misspelled(self) -> None:
        """To be called last. Raises BadSetting for a variable that wasn't asked for but looks like one that was.

        Others that begin like ours may be for another program in the same container.
        """
        for name in sorted(self._environ.keys() - self._asked):
            if name.startswith(PREFIX) and (near := difflib.get_close_matches(name, self._asked, 1, LOOKS_LIKE)):
                raise BadSetting(f"{name} is no setting; {near[0]} is")


def settings_or_exit(program: str, read: Callable[[Mapping[str, str]], _T]) -> _T:
    """What `read` makes of this process's environment; a BadSetting ends the process with 2 and one line on stderr."""
    try:
        return read(os.environ)
    except BadSetting as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(2)
