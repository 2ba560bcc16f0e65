"""Real runs, with one host's clock moved by us: the verdict stays, or is honestly not known.

Never is somebody accused who was not before. A run is read once, in a process of its own; clocks
are moved in what was read. Our own runs are in every clone, the others lie beside the repository.
"""

import json
from pathlib import Path

import pytest

from alerts.window.model import Window
from tests.stands.diagnosing import ROOT
from tests.tools.captures import CAPTURES
from tests.tools.cut import CUT
from tests.worlds.shifted import shifted, verdicts_of
from tests.worlds.windows import capture_window

OWN = ROOT / "tests/fixtures/diagnose"
RUNS = sorted(
    path.parent for path in (*OWN.glob("*/truth.json"), *CAPTURES.glob("h200-*/*/truth.json"))
)
NS = 1_000_000_000
MS = 1_000_000
HOUR = 3_600 * NS
PARTS = 8
"""Hosts of a run: with each cut another one's clock is moved."""
SURE = 0.5
"""Above it somebody is accused."""
LOST_SHARE_MAX = 0.05
"""Of all cases, those whose verdict is lost: a clock that was set in the very operation that shows
the fault, or a fault that is hardly one."""

HARD = {"hang6", "tree_net2"}
"""Of a stall that a clock was set in, nothing remains. In a tree behind a slow NIC ranks leave so
far apart that a step of a clock has no place, and its host is left out."""

CLOCKS: dict[str, dict[str, float]] = {
    "1 ms": {"offset_ns": MS},
    "50 ms": {"offset_ns": 50 * MS},
    "1 s": {"offset_ns": NS},
    "1 min": {"offset_ns": 60 * NS},
    "30 min": {"offset_ns": HOUR / 2},
    "1 h": {"offset_ns": HOUR},
    "-1 h": {"offset_ns": -HOUR},
    "5.5 h": {"offset_ns": 5.5 * HOUR},
    "24 h": {"offset_ns": 24 * HOUR},
    "200 ppm": {"drift": 2e-4},
    "1 h, -100 ppm": {"offset_ns": HOUR, "drift": -1e-4},
    "set by 5 ms": {"step_ns": 5 * MS},
    "set by 200 ms": {"step_ns": 200 * MS},
    "set by -200 ms": {"step_ns": -200 * MS},
    "set by 1 s": {"step_ns": NS},
    "set by 1 h": {"step_ns": HOUR},
    "set by -1 h": {"step_ns": -HOUR},
    "2 h, set by 50 ms": {"offset_ns": 2 * HOUR, "step_ns": 50 * MS},
}


def named(run: Path) -> str:
    return f"own-{run.name}" if run.parent == OWN else f"{run.parent.name}-{run.name}"


def case(run: Path) -> object:
    in_turn = [] if run.parent == OWN else [pytest.mark.rotating(4, run.name)]
    return pytest.param(run, id=named(run), marks=in_turn)


def accused(window: Window) -> set[tuple[str, str, int | None]]:
    return {
        (one.cause, one.culprit.host, one.culprit.rank)
        for one in verdicts_of(window)
        if one.confidence > SURE
    }


@pytest.mark.slow
@pytest.mark.parametrize("run", [case(run) for run in RUNS])
def test_a_wrong_clock_accuses_nobody(run: Path) -> None:
    window = capture_window(run)
    usual = accused(window)
    assert bool(usual) == (json.loads((run / "truth.json").read_text())["cause"] != "none")
    hosts = sorted({host for job in window.jobs for host in job.records.hosts})
    table = {}
    wrong = []
    for name, clock in CLOCKS.items():
        counts = table[name] = [0, 0, 0]
        for host in CUT.choose(hosts, PARTS, run.name + name):
            found = accused(shifted(window, host, **clock))
            kind = 0 if found == usual else 1 if found < usual else 2
            counts[kind] += 1
            wrong += [(name, host, found)] if kind == 2 else []
    print(f"\n{named(run):24s} {'same':>5s} {'unknown':>8s} {'wrong':>6s}")  # noqa: T201 - the table of the sweep
    for name, (same, unknown, other) in table.items():
        print(f"{name:24s} {same:5d} {unknown:8d} {other:6d}")  # noqa: T201 - the table of the sweep
    assert wrong == []
    unknown, total = sum(row[1] for row in table.values()), sum(map(sum, table.values()))
    assert unknown <= max(1, LOST_SHARE_MAX * total) or run.name in HARD
