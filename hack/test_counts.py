#!/usr/bin/env python3
"""Adds up what each test layer counted and prints it: hack/test_counts.py FOLDER LAYER…  Called by `make test`.

Reads FOLDER/LAYER.xml, which pytest wrote. Exit code 1 if a layer has no report, ran nothing, failed, or skipped
one: a test that could not run is a failure here, so that a green run means that everything ran.
"""

import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """The outcomes of one layer's tests; `failed` includes errors."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.seconds + other.seconds,
        )

    @property
    def good(self) -> bool:
        return self.passed > 0 and self.failed == 0 and self.skipped == 0


def read_counts(report: Path) -> Counts:
    """Reads a JUnit report; without one, nothing was counted."""
    if not report.is_file():
        return Counts()
    total = Counts()
    for suite in ET.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Counts(tests - failed - skipped, failed, skipped, float(suite.get("time", 0)))
    return total


def line(name: str, counts: Counts) -> str:
    """One layer's line."""
    verdict = "" if counts.good else "   <- nothing ran" if counts == Counts() else "   <- not good"
    skipped = f", {counts.skipped} skipped" if counts.skipped else ""
    return f"{name:<12} {counts.passed:>5} passed, {counts.failed} failed{skipped} in {counts.seconds:.0f} s{verdict}"


def main(folder: str, layers: list[str]) -> int:
    """Prints all lines, the sum last and alone on its line; gives the exit code."""
    counted = {layer: read_counts(Path(folder) / f"{layer}.xml") for layer in layers}
    print()
    for layer, counts in counted.items():
        print(line(layer, counts))
    total = sum(counted.values(), Counts())
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {total.failed} failed{skipped}")
    return 0 if all(counts.good for counts in counted.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
