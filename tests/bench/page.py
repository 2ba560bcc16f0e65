"""The built-in page's large answers: a heat map of ranks and steps, the state of every link.

No peer has them; the measure beside us is the same as plain JSON, number by number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.bench.processes import say
from tests.bench.report import ROOT, Bar, BenchError, Result, Table, number

LINKS, QUICK_LINKS = 4_096, 512
RANKS, QUICK_RANKS = 1_024, 64

FABRIC_SECONDS_BAR = 8
"""CPU-seconds, which two cores share: a few seconds until the map is coloured."""
HEAT_SECONDS_BAR = 10


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench: each in a process of its own, whose best pass of some counts."""
    del rounds  # every process makes several passes
    say("page: the state of every link")
    fabric = measure("fabric", QUICK_LINKS if is_quick else LINKS)
    say("page: ranks times steps")
    heat = measure("heat", QUICK_RANKS if is_quick else RANKS)
    heat_s = heat["read_seconds"] + max(heat["late_seconds"], heat["compute_seconds"])
    rows = [
        [
            f"state of {fabric['links']:,} links at 60 moments of an hour",
            f"{number(fabric['seconds'])} s",
            f"{fabric['bytes'] / 1e6:.1f} MB",
            f"{fabric['plain_encode_seconds'] / fabric['encode_seconds']:.0f}x",
        ],
        [
            f"{heat['ranks']:,} ranks x {heat['steps']:,} steps",
            f"{number(heat_s)} s",
            f"{heat['bytes'] / 1e6:.1f} MB",
            f"{heat['plain_encode_seconds'] / heat['encode_seconds']:.0f}x",
        ],
    ]
    return Result(
        name="page",
        tables=[
            Table(
                title="Answers for the built-in page",
                columns=["", "CPU", "size", "faster to write than plain JSON"],
                rows=rows,
            )
        ],
        bars=[
            Bar(
                what="state of 4,096 links at 60 moments in CPU-seconds {needed}",
                needed=FABRIC_SECONDS_BAR,
                value=None if is_quick else fabric["seconds"],
                unit=" s",
                at_most=True,
            ),
            Bar(
                what="heat map of 1,024 ranks and two million records in CPU-seconds {needed}",
                needed=HEAT_SECONDS_BAR,
                value=None if is_quick else heat_s,
                unit=" s",
                at_most=True,
            ),
        ],
        figures={"fabric": fabric, "heat": heat},
        notes=[note_of(fabric, heat)],
        is_quick=is_quick,
    )


def note_of(fabric: dict[str, Any], heat: dict[str, Any]) -> str:
    """What the figures are of."""
    first = number(fabric["first_seconds"])
    return (
        f"{fabric['samples']:,} samples and {heat['records']:,} records; the first question for "
        f"the fabric, which learns the names of series, took {first} CPU-seconds"
    )


def measure(what: str, count: int) -> dict[str, Any]:
    """The figures of one of them."""
    command = [sys.executable, "-m", "tests.bench.page_rows", what, str(count)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command[1:])}: {done.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
