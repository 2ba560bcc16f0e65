"""The documentation says what the code does: generated parts are fresh, links lead somewhere."""

import re
from pathlib import Path

import pytest

from alerts.detectors import discover
from tests.tools import docs_tables
from tests.tools.docs_tables import ROOT
from tests.tools.query_costs import pack

PROSE = sorted(
    file
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if ".venv" not in file.parts
)


@pytest.mark.parametrize("file", docs_tables.documents(), ids=lambda file: file.name)
def test_generated_parts_are_fresh(file: Path) -> None:
    text = file.read_text("utf-8")
    assert docs_tables.refreshed(text) == text, "run make docs"


@pytest.mark.parametrize("file", PROSE, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(file: Path) -> None:
    text = re.sub(r"```.*?```", "", file.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (file.parent / target).exists(), f"{target} in {file.name}"


def test_every_generated_part_is_used() -> None:
    used = {
        name
        for file in docs_tables.documents()
        for _, name, _ in docs_tables.PART.findall(file.read_text("utf-8"))
    }
    assert used == set(docs_tables.PARTS)


@pytest.mark.parametrize("name", discover())
def test_every_detector_says_what_it_sees_and_what_it_misses(name: str) -> None:
    told = docs_tables.detector_paragraphs(name)
    assert list(told) == ["Phenomenon", "Signal", "Assumptions", "Misses", "Reference"]
    assert all(told.values())


def test_the_readme_counts_the_alerts_of_the_pack() -> None:
    count = sum(rule.is_alert for _, rule in pack())
    assert f"{count} alert rules" in (ROOT / "README.md").read_text("utf-8")
