"""From an hour of a large job's records to a verdict: how long, how much memory, how it grows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.bench.join_rows import RANKS
from tests.bench.processes import say
from tests.bench.report import ROOT, Bar, BenchError, Result, Table, number
from tests.bench.verdict_rows import LATE_HOST

ROWS, QUICK_ROWS = 36_864_000, 3_686_400
"""One hour of 10,240 ranks with one operation a second; six minutes of it."""
SHARES = (0.01, 0.1, 1.0)
"""Of the time: a minute's half, six minutes, an hour."""
SECONDS_BAR, GIB_BAR = 10, 4
EXPECTED = [["straggler", f"node{LATE_HOST}"]]


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench; medians of several rounds."""
    rows = QUICK_ROWS if is_quick else ROWS
    measured = []
    for share in SHARES:
        count = int(rows * share) // RANKS * RANKS
        say(f"verdict: {count:,} records")
        each = sorted((measure(count) for _ in range(rounds)), key=lambda one: one["seconds"])
        measured.append(each[len(each) // 2])
    table = Table(
        title="From records to a verdict that names the late host",
        columns=["records", "held", "read", "detect and judge", "together", "peak memory"],
        rows=[
            [
                f"{one['rows']:,}",
                f"{one['rows_held']:,}",
                f"{number(one['read_seconds'])} s",
                f"{number(one['judge_seconds'])} s",
                f"{number(one['seconds'])} s",
                f"{number(one['peak_gib'])} GiB",
            ]
            for one in measured
        ],
    )
    return Result(
        name="verdict",
        tables=[table],
        bars=bars(measured[-1]),
        figures={"measured": measured},
        notes=[
            "The host is late from two thirds of the time on; a run that names anyone else fails.",
            f"To make the records took {number(measured[-1]['peak_before_gib'])} GiB before.",
        ],
        is_quick=is_quick,
    )


def bars(whole: dict[str, Any]) -> list[Bar]:
    """What was promised."""
    return [
        Bar(
            what="an hour of 10,240 ranks to a verdict in seconds {needed}",
            needed=SECONDS_BAR,
            value=whole["seconds"],
            unit=" s",
            at_most=True,
        ),
        Bar(
            what="its peak memory in GiB {needed}",
            needed=GIB_BAR,
            value=whole["peak_gib"],
            unit=" GiB",
            at_most=True,
        ),
    ]


def measure(rows: int) -> dict[str, Any]:
    """One run in a process of its own: its memory is part of the bar."""
    command = [sys.executable, "-m", "tests.bench.verdict_rows", str(rows)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"verdict_rows failed: {done.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if figures["verdicts"] != EXPECTED:
        raise BenchError(f"{rows} records should name {EXPECTED}: {figures['verdicts']}")
    return figures
