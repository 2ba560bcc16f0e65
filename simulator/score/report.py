"""The scoreboard as people read it: a JSON document, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from simulator.score.marks import NOTHING, Marks, Row, Run, Sureness

FALSE_PER_DAY_MAX = 0.1
"""The bar: one false incident in ten days of a healthy cluster."""


ABSENT = "-"
"""Where there is nothing to divide by."""


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """What `build/score.json` holds."""

    version: str
    seeds: list[int]
    without: str = "none"
    """What was taken away, see `simulator.score.handicap`."""
    marks: Marks
    runs: list[Run]


def to_json(board: Scoreboard) -> bytes:
    return msgspec.json.format(msgspec.json.encode(board), indent=1) + b"\n"


def to_markdown(board: Scoreboard) -> str:
    """The tables: per cause, per fault, which cause was taken for which, and false incidents."""
    marks = board.marks
    lines = [
        "# Scoreboard",
        "",
        (
            f"{marks.runs} runs, seeds {', '.join(str(seed) for seed in board.seeds)}; "
            f"{marks.overall.truths} faults, {marks.overall.found} found"
            + (f"; taken away: {board.without}." if board.without != "none" else ".")
        ),
        "",
        (
            f"False incidents: {marks.false_incidents} in "
            f"{marks.benign_seconds / 3600:.1f} simulated hours in which nothing was wrong "
            f"({number(marks.false_per_day)} a day; the bar is {FALSE_PER_DAY_MAX})."
        ),
        "",
        *(
            [
                f"{marks.by_chance} verdicts beside these are about flows that did meet by chance.",
                "",
            ]
            if marks.by_chance
            else []
        ),
        "## By cause",
        "",
        *table([marks.overall, *marks.by_cause]),
        "",
        "## By fault",
        "",
        *table(marks.by_fault),
        "",
        "## Taken for",
        "",
        *confusion_table(marks.confusion),
        "",
        "## How sure, and how often right",
        "",
        *sureness_table(marks.sureness),
        "",
    ]
    if marks.broken:
        lines += ["## Runs that broke off", "", *(f"- {text}" for text in marks.broken), ""]
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> list[str]:
    """Rows of marks; a dash where there is nothing to divide by."""
    lines = [
        "| | faults | top-1 | recall | precision | delay, median | p90 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            str(row.truths),
            percent(row.top_1),
            percent(row.recall),
            percent(row.precision),
            seconds(row.delay_median_s),
            seconds(row.delay_p90_s),
        )
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return lines


def confusion_table(confusion: dict[str, dict[str, int]]) -> list[str]:
    """The true cause (rows) against that of the first verdict (columns)."""
    causes = sorted({name for row in confusion.values() for name in row} - {NOTHING})
    columns = [*causes, NOTHING]
    lines = [f"| truth \\ first verdict | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for true, row in confusion.items():
        cells = [str(row.get(name, "")) for name in columns]
        lines.append(f"| {true} | {' | '.join(cells)} |")
    return lines


def sureness_table(rows: Sequence[Sureness]) -> list[str]:
    lines = ["| confidence | verdicts | mean | right |", "|---|---|---|---|"]
    return lines + [
        f"| {row.from_confidence:.2f} to {row.to_confidence:.2f} | {row.said} "
        f"| {row.mean_confidence:.2f} | {percent(row.right / row.said)} |"
        for row in rows
    ]


def percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def seconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f} s"


def number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2g}"
