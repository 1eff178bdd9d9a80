"""The table "Who may reach whom" of docs/security.md, as data. Read by the tests of the chart and of the cluster."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
HEADING = "## Who may reach whom"


def reach_table() -> dict[tuple[str, str], bool]:
    """(from, to) -> whether a connection is let through, for every cell of the table."""
    section = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    head, _, *rows = [_cells(line) for line in section.splitlines() if line.startswith("|")]
    targets = head[1:]
    return {(row[0], target): bool(cell) for row in rows for target, cell in zip(targets, row[1:], strict=True)}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
