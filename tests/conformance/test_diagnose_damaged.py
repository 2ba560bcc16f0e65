"""`diagnose` on damaged captures: the culprit or honestly nobody, never an innocent.

`python -m tests.stands.damaging COUNT RUN...` prints the same as a table.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_diagnose_runs import OWN, RUNS, named
from tests.stands.damaging import HEADINGS, fault_lines, line_of, table_lines, table_of
from tests.tools.cut import CUT

COUNT = 16 if CUT.is_all else 5
"""Damages of each kind."""


def case(run: Path) -> Any:  # noqa: ANN401 - pytest's own
    marks = [pytest.mark.rotating(3 if run.parent == OWN else 4, f"damaged {run.parent == OWN}")]
    return pytest.param(run, id=named(run), marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("run", [case(run) for run in RUNS])
def test_no_damage_makes_an_innocent_the_culprit(run: Path) -> None:
    """Ranks absent, files missing or cut off, times of 1970: one job, true ranks, no wrong name."""
    rows = table_of(run, COUNT)
    assert fault_lines(run, rows) == [], "\n".join([line_of(*HEADINGS), *table_lines(run, rows)])
    first = rows[0][1]
    if run.name != "hang6":  # nothing in it names the rank: tests/conformance/test_diagnose_runs.py
        assert first.answer == ("unknown" if is_healthy(run) else "named"), "the whole capture"


def is_healthy(run: Path) -> bool:
    return '"none"' in (run / "truth.json").read_text("utf-8")
