"""One table of causes: every entry is complete, each fact has a use, and no second table exists."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from alerts.detectors import discover, looks_for
from api.diagnose.page import page_data
from api.diagnose.report import Diagnosis, Read
from collector.contract.causes import Cause, cause_table, runbook_of
from collector.contract.verdict import Reason
from tests.stands.service import in_process

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("alerts", "api", "collector", "dashboards")
"""The simulator and the scoreboard know what they inject: that is no fact about a cause."""
TABLE = ROOT / "collector/contract/causes.py"
WEB = ROOT / "dashboards/web/src"


def trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield path, ast.parse(path.read_text("utf-8"))


def member_of(node: ast.AST | None, words: str) -> str:
    """The X of `Cause.X`; empty for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == words else ""
    return ""


def reported() -> set[str]:
    """Causes and reasons that detectors and the judge can put into a finding."""
    found: set[str] = set()
    for _, tree in trees("alerts"):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "cause":
                found |= {member_of(each, "Cause") for each in ast.walk(node.value)}
    return found - {""}


# --- each entry is complete ----------------------------------------------------------------------


def test_every_cause_is_reported_by_a_detector_or_by_the_judge() -> None:
    assert sorted(cause.name for cause in Cause) == sorted(reported())


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_words_data_a_runbook_and_a_colour(cause: Cause) -> None:
    facts = cause.facts
    texts = [facts.meaning, facts.unnamed, facts.alert, facts.action, *facts.does]
    assert all(texts)
    assert facts.meaning.endswith(".")
    assert not facts.unnamed.endswith(".")
    assert facts.looks_for.title
    assert facts.looks_for.needs
    assert (ROOT / f"docs/runbooks/{facts.runbook}.md").is_file()
    guide = (ROOT / "docs/how-to/read-a-verdict.md").read_text("utf-8")
    assert f"| `{cause}` | {facts.meaning} |" in guide
    sheet = (WEB / "style/page.css").read_text("utf-8")
    # Once for light, once for dark.
    assert len(re.findall(rf"^\s*--{facts.colour}: ", sheet, re.MULTILINE)) == 2


@pytest.mark.parametrize("reason", [one for one in Reason if one is not Reason.UNKNOWN])
def test_every_reason_has_words(reason: Reason) -> None:
    facts = reason.facts
    assert all((facts.title, facts.because, facts.action))
    assert not facts.runbook or (ROOT / f"docs/runbooks/{facts.runbook}.md").is_file()


@pytest.mark.parametrize(("cause", "reason"), list(itertools.product(Cause, Reason)))
def test_every_cause_with_every_reason_leads_to_a_runbook(cause: Cause, reason: Reason) -> None:
    assert (ROOT / f"docs/runbooks/{runbook_of(cause, reason)}.md").is_file()


@pytest.mark.parametrize(
    ("cause", "reason", "runbook"),
    [
        (Cause.LOSSY_LINK, Reason.CABLE, "bit-errors"),
        (Cause.LOSSY_LINK, Reason.UNKNOWN, "packet-loss"),
        (Cause.SLOW_LINK, Reason.CABLE, "bit-errors"),
        (Cause.SLOW_LINK, Reason.PCIE, "nic-pcie-backpressure"),
        (Cause.STRAGGLER, Reason.PCIE, "gpu-pcie"),
        (Cause.STRAGGLER, Reason.HOST_STALL, "late-rank"),
        (Cause.STRAGGLER, Reason.GPU_THROTTLED, "gpu-throttle"),
        (Cause.HANG, Reason.CABLE, "job-stopped"),
    ],
)
def test_the_runbook_is_of_both_together_then_of_the_reason_then_of_the_cause(
    cause: Cause, reason: Reason, runbook: str
) -> None:
    assert runbook_of(cause, reason) == runbook


def test_no_two_causes_share_a_colour_or_a_depth() -> None:
    colours = [cause.facts.colour for cause in Cause]
    assert len(set(colours)) == len(colours)
    depths = [cause.facts.depth for cause in Cause]
    depths += [row.depth for cause in Cause for row in cause.facts.by_reason.values()]
    known = [depth for depth in depths if depth is not None]
    assert len(set(known)) == len(known)


def test_a_line_for_a_reason_says_something() -> None:
    empty = type(next(iter(Cause.HANG.facts.by_reason.values())))()
    assert [
        (cause, reason)
        for cause in Cause
        for reason, row in cause.facts.by_reason.items()
        if row == empty or (row.blame is not None and row.blame == cause.facts.blame)
    ] == []


def test_every_detector_says_which_data_it_needs() -> None:
    assert [name for name in discover() if not looks_for(name).needs] == []


# --- the page gets the table ---------------------------------------------------------------------


def test_the_service_answers_with_the_table(tmp_path: Path) -> None:
    with in_process(tmp_path) as service:
        answer = service.client.get("/v1/causes").json()
    assert answer == msgspec.json.decode(msgspec.json.encode(cause_table()))
    assert [one["name"] for one in answer["causes"]] == [str(cause) for cause in Cause]


def test_a_report_carries_the_table() -> None:
    read = Read(
        files=0, size_bytes=0, formats=[], not_understood=[], not_understood_count=0, broken=[],
        broken_count=0, left_out=[], losses=[],
    )  # fmt: skip
    assert page_data(Diagnosis(read=read, jobs=[]), [], [], None).causes == cause_table()


# --- and there is no other -----------------------------------------------------------------------


def causes_among(nodes: list[ast.expr]) -> set[str]:
    """Causes that these expressions name, by the enum or by a text; a key may be a pair."""
    names: set[str] = set()
    for node in nodes:
        first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
        if name := member_of(first, "Cause"):
            names.add(name.lower())
        elif isinstance(first, ast.Constant) and first.value in set(map(str, Cause)):
            names.add(str(first.value))
    return names


def collections_in(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield node.lineno, causes_among([key for key in node.keys if key is not None])
        elif isinstance(node, ast.Set | ast.List | ast.Tuple):
            yield node.lineno, causes_among(node.elts)


def test_no_other_module_lists_causes() -> None:
    second = [
        f"{path.relative_to(ROOT)}:{line}: {sorted(names)}"
        for path, tree in trees(*PRODUCT)
        if path != TABLE
        for line, names in collections_in(tree)
        if len(names) > 1
    ]
    assert second == []


def test_the_page_lists_no_causes() -> None:
    words = "|".join(Cause)
    named = re.compile(rf"""["']({words})["']|^\s*({words}):""", re.MULTILINE)
    # Events have kinds with such names, so one name is no table.
    second = {
        str(path.relative_to(ROOT)): found
        for path in sorted(WEB.rglob("*.ts*"))
        if ".test." not in path.name
        and len(found := {a or b for a, b in named.findall(path.read_text("utf-8"))}) > 1
    }
    assert second == {}


def test_rule_templates_list_no_causes() -> None:
    for path in sorted((ROOT / "alerts/rules/templates").glob("*.yaml")):
        found = re.findall(rf'cause[^\n]*?"({"|".join(Cause)})"', path.read_text("utf-8"))
        assert len(set(found)) <= 1, path.name
