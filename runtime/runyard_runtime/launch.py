"""`runyard-runtime`: looks whether the LangGraph of the image is one that this runtime works with, then starts it.

A user's image may bring another LangGraph. The fence that keeps a stale run from writing depends on the checkpoint
package, so with another version nothing is started, and the operator shows the reason at the Agent. Imports nothing of
LangGraph: with another version that may fail in ways that tell nobody why.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from runyard_runtime.termination import LOG, leave_reason

REASON = "UnsupportedLangGraph"
NOT_IN_PODS = frozenset({"langgraph-checkpoint-sqlite"})
_PIN = re.compile(r"^(langgraph[a-z-]*)==([^;\s]+)")


def main() -> None:
    """Ends with 1 and the reason in the termination message if the versions don't fit; otherwise runs the runtime."""
    if (problem := unsupported(requires("runyard") or (), installed)) is not None:
        leave_reason(Path(os.environ.get("RUNYARD_TERMINATION_LOG", LOG)), REASON, problem)
        sys.exit(1)
    run: Callable[[], None] = import_module("runyard_runtime.__main__").main
    run()


def unsupported(requirements: Iterable[str], version_of: Callable[[str], str | None]) -> str | None:
    """Which package doesn't fit and which version would, in one sentence; None if all do.

    `requirements` are the distribution's own. LangGraph itself may be a newer one of the same minor version or later
    within the same major; what is pinned beside it has to be that very version.
    """
    for name, wanted in pins(requirements).items():
        found = version_of(name)
        if found is None or not _fits(name, found, wanted):
            has = f"{name} {found}" if found else f"no {name}"
            return f"the image has {has}, this runtime works with {wanted}: install by its constraints.txt"
    return None


def pins(requirements: Iterable[str]) -> Mapping[str, str]:
    """The packages of LangGraph that are pinned exactly, with their versions."""
    found = (match.groups() for text in requirements if (match := _PIN.match(text)))
    return {name: wanted for name, wanted in found if name not in NOT_IN_PODS}


def installed(name: str) -> str | None:
    """The version of a distribution; None: it isn't there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _fits(name: str, found: str, wanted: str) -> bool:
    if name != "langgraph":
        return found == wanted
    (major, minor), (least_major, least_minor) = _release(found), _release(wanted)
    return major == least_major and minor >= least_minor


def _release(text: str) -> tuple[int, int]:
    numbers = [int(part) for part in re.findall(r"\d+", text)[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


if __name__ == "__main__":
    main()
