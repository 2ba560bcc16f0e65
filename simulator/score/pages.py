"""Marks of a day on call: the pages that were sent, compared with the faults. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collector.contract.units import NS
from collector.contract.verdict import Verdict
from simulator.scenario import Truth
from simulator.score.day import Shift
from simulator.score.marks import is_right

PAGE_GRACE_NS = 120 * NS
"""How long after a fault's end a page is still about it: rules keep firing for a while."""
PAGES_PER_FAULT_MAX = 1.25
"""The bar: twenty faults, twenty-five pages at most."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page. Unix nanoseconds."""

    sent_ns: int
    why: str
    """first, changed or repeat."""
    alerts: tuple[str, ...]
    incident: str = ""
    verdict: Verdict | None = None
    """Its incident's verdict at that time; None: it is about none."""
    summary: str = ""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """One shift, played to its end."""

    shift: Shift
    seconds: float
    truths: list[Truth]
    pages: list[Page]
    inhibited: int = 0
    names: dict[str, int] = {}
    """How many alerts of each name fired, of those that can page."""
    error: str = ""


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, and the pages about it."""

    truth: Truth
    pages: int
    """Sent while it acted or shortly after."""
    delay_s: float | None
    """From its start to the first page that names its culprit; None: there was none."""


class DayMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of a day."""

    hours: float
    faults: list[Covered]
    pages: int
    stray: list[Page]
    """Pages while nothing was wrong."""
    inhibited: int
    names: dict[str, int]
    broken: list[str]

    @property
    def uncovered(self) -> list[Covered]:
        return [each for each in self.faults if each.delay_s is None]


def mark_day(watches: Sequence[Watch]) -> DayMarks:
    faults, stray = [], []
    names: dict[str, int] = {}
    for watch in watches:
        wrong = [truth for truth in watch.truths if truth.causes]
        faults += [cover(truth, watch.pages) for truth in wrong]
        stray += [
            page for page in watch.pages if not any(is_during(page, truth) for truth in wrong)
        ]
        for name, count in watch.names.items():
            names[name] = names.get(name, 0) + count
    return DayMarks(
        hours=sum(watch.seconds for watch in watches) / 3_600,
        faults=faults,
        pages=sum(len(watch.pages) for watch in watches),
        stray=stray,
        inhibited=sum(watch.inhibited for watch in watches),
        names=dict(sorted(names.items())),
        broken=[f"shift {watch.shift.number}: {watch.error}" for watch in watches if watch.error],
    )


def cover(truth: Truth, pages: Sequence[Page]) -> Covered:
    about = [page for page in pages if is_during(page, truth)]
    right = [page for page in about if page.verdict is not None and is_right(page.verdict, truth)]
    first = min((page.sent_ns for page in right), default=None)
    return Covered(
        truth=truth,
        pages=len(about),
        delay_s=(first - truth.start_ns) / NS if first is not None else None,
    )


def is_during(page: Page, truth: Truth) -> bool:
    return truth.start_ns <= page.sent_ns <= truth.end_ns + PAGE_GRACE_NS


def day_markdown(marks: DayMarks) -> str:
    covered = len(marks.faults) - len(marks.uncovered)
    lines = [
        "# A day on call",
        "",
        (
            f"{marks.hours:.1f} simulated hours, {len(marks.faults)} faults: {marks.pages} pages, "
            f"{covered} faults covered by one that names the culprit, {len(marks.stray)} pages "
            f"while nothing was wrong; {marks.inhibited} alerts held back by incidents."
        ),
        "",
        "| fault | pages | named after |",
        "|---|---|---|",
        *(
            f"| {each.truth.fault} | {each.pages} "
            f"| {'never' if each.delay_s is None else f'{each.delay_s:.0f} s'} |"
            for each in marks.faults
        ),
        "",
        "| alert | fired |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in marks.names.items()),
        "",
    ]
    if marks.stray:
        lines += ["## Pages while nothing was wrong", ""]
        lines += [f"- {', '.join(page.alerts)}: {page.summary}" for page in marks.stray]
        lines += [""]
    if marks.broken:
        lines += ["## Shifts that broke off", "", *(f"- {text}" for text in marks.broken), ""]
    return "\n".join(lines)
