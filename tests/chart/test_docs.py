"""docs/operations.md knows every condition and reason, every page that it names is there, and so is every value."""

import re
from enum import StrEnum
from pathlib import Path

import pytest
from tests.chart.conftest import ROOT
from tests.chart.schema import described

from runyard_api.conditions import AgentReason, ConditionType, RunReason

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PAGES = [ROOT / "docs" / name for name in ("operations.md", "security.md")]


@pytest.mark.parametrize("reasons", [AgentReason, RunReason, ConditionType])
def test_every_condition_and_reason_is_explained(reasons: type[StrEnum]) -> None:
    section = PAGE.partition("## Conditions")[2].partition("\n## ")[0]
    assert [one.value for one in reasons if not re.search(rf"\b{one.value}\b", section)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_value_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    values = {path.removeprefix(".") for path, _ in described()}
    parts = {path.partition(".")[0] for path in values if path}
    named = {name for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)\b", text) if name.partition(".")[0] in parts}
    assert named
    assert named - values - NO_VALUES == set()


NO_VALUES = {"agents.runyard.dev"}
"""A CRD's name."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    headings = {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith("http"):
            assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
