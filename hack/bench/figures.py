"""What a bench run found, and the page it becomes: tables in Markdown, put between two marks of a document. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Figure:
    """One row. `met` tells whether the goal is reached, None where there is no goal."""

    what: str
    value: str
    goal: str = ""
    met: bool | None = None


@dataclass
class Section:
    """One table, in the order measured."""

    title: str
    figures: list[Figure] = field(default_factory=list)


def at_most(what: str, value: float, unit: str, *, goal: float, shown: str = "") -> Figure:
    """A row whose goal is an upper bound; `shown` stands in for the value where more is to be said."""
    return Figure(what, shown or f"{value:.1f} {unit}".rstrip(), f"≤ {goal:g} {unit}".rstrip(), value <= goal)


def at_least(what: str, value: float, unit: str, *, goal: float, shown: str = "") -> Figure:
    """A row whose goal is a lower bound; `shown` as in `at_most`."""
    return Figure(what, shown or f"{value:.1f} {unit}".rstrip(), f"≥ {goal:g} {unit}".rstrip(), value >= goal)


def markdown(heading: Iterable[str], sections: Iterable[Section]) -> str:
    """The heading's lines as a list, then a table for each section that has rows."""
    lines = [f"- {line}" for line in heading]
    for section in sections:
        if section.figures:
            lines += ["", f"### {section.title}", "", "| What | Measured | Goal | Met |", "|---|---|---|---|"]
            lines += [_row(figure) for figure in section.figures]
    return "\n".join(lines) + "\n"


def placed(document: str, figures: str) -> str:
    """The document with `figures` between its marks. Raises ValueError when it hasn't both."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no place for figures: a line {BEGIN} and, below it, one {END}")
    return f"{before}{BEGIN}\n\n{figures}\n{END}{after}"


def _row(figure: Figure) -> str:
    met = {True: "yes", False: "**no**", None: ""}[figure.met]
    cells = (figure.what, figure.value, figure.goal, met)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
