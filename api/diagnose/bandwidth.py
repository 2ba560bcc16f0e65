"""Results of nccl-tests: a table for each test, and the baseline for a job's collectives.

They are held here and not in the store: a table has a few hundred numbers.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from api.jobs.correlate.baseline import Baselines
from collector.contract.model import Sample
from collector.formats import nccl_tests

RESULTS_MAX = 200_000
"""Numbers that are held: a thousand files of forty sizes."""
FIELDS: Final = {
    nccl_tests.BUS: "bus_bytes_per_second",
    nccl_tests.ALGORITHM: "algorithm_bytes_per_second",
    nccl_tests.DURATION: "seconds",
    nccl_tests.WRONG: "wrong",
}
"""Of each metric, the member of a `BandwidthRow`."""

Test = tuple[str, str, int]
"""A file, an operation and a number of ranks: one test, or several runs of one."""
Measured = tuple[int, str, str]
"""A size, a type and a placement."""


class BandwidthRow(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a test of nccl-tests, measured one way."""

    size_bytes: int
    """One rank's part, as NCCL counts; of all-gather and the like nccl-tests prints the whole."""
    type: str
    placement: str
    """`out_of_place` or `in_place`."""
    seconds: float | None = None
    algorithm_bytes_per_second: float | None = None
    bus_bytes_per_second: float | None = None
    wrong: float | None = None
    """Values that were wrong; null if the test did not check."""


class BandwidthReport(msgspec.Struct, frozen=True, kw_only=True):
    """One test of nccl-tests in one file."""

    path: str
    operation: str
    ranks: int | None
    rows: list[BandwidthRow]
    mean_bus_bytes_per_second: float | None = None


def is_result(sample: Sample) -> bool:
    return sample.series.metric in FIELDS or sample.series.metric == nccl_tests.MEAN


class Results:
    """What the files hold. A test that is run twice in a file has its later numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._rows: dict[Test, dict[Measured, dict[str, float]]] = {}
        self._means: dict[Test, float] = {}

    def add(self, path: str, sample: Sample) -> str | None:
        """The reason if it is refused."""
        if not math.isfinite(sample.value):
            return "a result that is no number"
        if self._count >= RESULTS_MAX:
            return f"over RESULTS_MAX = {RESULTS_MAX} results"
        self._count += 1
        labels = dict(sample.series.labels)
        test = path, labels.get("operation", ""), to_number(labels.get("ranks", ""))
        rows = self._rows.setdefault(test, {})
        if sample.series.metric == nccl_tests.MEAN:
            self._means[test] = sample.value
            return None
        kind, placement = labels.get("type", ""), labels.get("placement", "")
        measured = to_number(labels.get("bytes", "")), kind, placement
        rows.setdefault(measured, {})[FIELDS[sample.series.metric]] = sample.value
        return None

    def tests(self) -> list[BandwidthReport]:
        """In order of files, operations and sizes."""
        return [
            BandwidthReport(
                path=path,
                operation=operation,
                ranks=ranks or None,
                rows=[
                    BandwidthRow(size_bytes=size, type=kind, placement=placement, **values)
                    for (size, kind, placement), values in sorted(rows.items())
                ],
                mean_bus_bytes_per_second=self._means.get((path, operation, ranks)),
            )
            for (path, operation, ranks), rows in sorted(self._rows.items())
        ]

    def baselines(self) -> Baselines:
        """The best bus bandwidth by operation, number of ranks and size."""
        best: dict[tuple[str, int], dict[int, float]] = {}
        for (_, operation, ranks), rows in self._rows.items():
            sizes = best.setdefault((operation, ranks), {})
            for (size, _, _), values in rows.items():
                bus = values.get("bus_bytes_per_second")
                if bus is not None:
                    sizes[size] = max(bus, sizes.get(size, 0.0))
        return Baselines({test: sorted(sizes.items()) for test, sizes in best.items()})


def to_number(text: str) -> int:
    """A label's whole number; 0 where it has none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0  # noqa: PLR2004 - 64 bits
