"""The table at the end of a run: what each case came to."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.chaos.ledger import Tally

Report = Callable[[Tally], None]

PARTS = 36
"""Of which `make test` takes one: there are half as many cases, so that every second run of
everything has one, for 20 to 200 s of a core. `tests/chaos/test_kill.py` is in all of them."""

LINES = pytest.StashKey[list[tuple[str, Tally, float]]]()
HEAD = ("case", "acknowledged", "stored", "refused", "pages", "verdict", "seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Write the tally of this case into the table."""
    began = time.monotonic()
    name = request.node.name.removeprefix("test_")

    def write(tally: Tally) -> None:
        lines = request.config.stash.setdefault(LINES, [])
        lines.append((name, tally, time.monotonic() - began))

    return write


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(LINES, [])
    if not lines:
        return
    rows = [HEAD] + [
        (
            name,
            f"{tally.acknowledged:,}",
            f"{tally.stored:,}",
            f"{tally.refused:,}",
            str(tally.pages),
            tally.verdict,
            f"{seconds:.0f}",
        )
        for name, tally, seconds in lines
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    terminalreporter.write_sep("=", "chaos")
    for row in rows:
        cells = [
            cell.ljust(width) if place in {0, 5} else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        terminalreporter.write_line("  ".join(cells))
