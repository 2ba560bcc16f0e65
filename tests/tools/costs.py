"""What each test file and each test costs in CPU time, printed at the end of a run.

CPU time of the process and of the programs that it started and has seen end: other work on the
machine does not change it, as it changes durations. A pytest plug-in (`tests/conftest.py`).
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.tools.cut import DEAR, DEAR_SECONDS, TABLE

PROPERTY = "cpu_seconds"
"""How a report carries it from a process that runs tests to the one that prints."""
SHOWN = 25


def cpu_seconds() -> float:
    """User and system time so far, of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Costs:
    """Measures each test with its fixtures, and prints the dearest."""

    def __init__(self) -> None:
        self._seen = cpu_seconds()
        self._by_file: defaultdict[str, float] = defaultdict(float)
        self._by_test: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._seen = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Of each of its three phases: setting up, the test, tearing down."""
        now = cpu_seconds()
        item.user_properties = [(PROPERTY, now - self._seen)]
        self._seen = now
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In the process that prints."""
        seconds = dict(report.user_properties).get(PROPERTY)
        if isinstance(seconds, float):
            self._by_file[report.nodeid.partition("::")[0]] += seconds
            self._by_test[report.nodeid] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"CPU time: {sum(self._by_file.values()):.0f} s")
        for costs in (self._by_file, self._by_test):
            dearest = sorted(costs.items(), key=lambda each: -each[1])
            for place, seconds in dearest[:SHOWN]:
                terminalreporter.write_line(f"{seconds:7.1f} s  {place}")
        for place, seconds in sorted(self._by_file.items()):
            if seconds > 2 * DEAR_SECONDS and place not in DEAR:  # a busy machine needs more
                line = f"{place} costs {seconds:.0f} s and should stand in {TABLE.name}"
                terminalreporter.write_line(line, yellow=True)
