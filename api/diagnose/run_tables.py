"""What nccl-tests measured, and what changed since another run, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from api.diagnose import units
from api.diagnose.bandwidth import BandwidthReport, BandwidthRow
from collector.contract.collective import Operation

SIZES_SHOWN = 12
"""Sizes of a test; the largest are what fabrics are bought for."""
TESTS_SHOWN = 12
CHANGES_SHOWN = 20
EQUAL_SHOWN = 8


class SizeLine(NamedTuple):
    """One size of a test: out of place, in place."""

    size_bytes: int
    type: str
    out_of_place: BandwidthRow | None
    in_place: BandwidthRow | None

    def cells(self) -> list[str]:
        shown = [units.size(self.size_bytes), self.type]
        for row in (self.out_of_place, self.in_place):
            shown += measured(row)
        return shown


HEADINGS = (
    "size", "type", "time", "algbw", "busbw", "wrong", "in place: time", "algbw ", "busbw ",
    "wrong ",
)  # fmt: skip


def measured(row: BandwidthRow | None) -> list[str]:
    if row is None:
        return ["-"] * 4
    return [
        units.duration(row.seconds * 1e9) if row.seconds is not None else "-",
        units.rate(row.algorithm_bytes_per_second),
        units.rate(row.bus_bytes_per_second),
        f"{row.wrong:,.0f}" if row.wrong is not None else "-",
    ]


def size_lines(test: BandwidthReport) -> list[SizeLine]:
    found: dict[tuple[int, str], dict[str, BandwidthRow]] = {}
    for row in test.rows:
        found.setdefault((row.size_bytes, row.type), {})[row.placement] = row
    return [
        SizeLine(size, kind, own.get("out_of_place"), own.get("in_place"))
        for (size, kind), own in sorted(found.items())
    ]


def shown_lines(lines: Sequence[SizeLine]) -> list[SizeLine]:
    """The largest sizes, and any with wrong values."""
    largest = set(lines[-SIZES_SHOWN:])
    return [line for line in lines if line in largest or is_wrong(line)]


def is_wrong(line: SizeLine) -> bool:
    return any(row is not None and row.wrong for row in (line.out_of_place, line.in_place))


def operation_of(test: BandwidthReport) -> str:
    is_known = test.operation != Operation.OTHER.value
    return test.operation if is_known else "of an operation that the file does not name"


def title_of(test: BandwidthReport) -> str:
    parts = [
        f"nccl-tests {operation_of(test)}",
        units.count(test.ranks, "rank") if test.ranks else "ranks not known",
        "as its bandwidths show" if test.is_inferred else "",
        units.count(test.hosts, "host") if test.hosts else "",
        test.gpus,
    ]
    return ", ".join(part for part in parts if part)


def result_lines(test: BandwidthReport) -> Iterator[str]:
    """What was reached, and what could be."""
    best = test.best_bus_bytes_per_second
    if best is None:
        yield "No bandwidth: every row is without a result."
        return
    most = test.expected_bus_bytes_per_second
    of = f" of at most {units.rate(most)} ({best / most:.0%})" if most else ""
    unknown = "" if most else "What could be reached is not known: "
    yield f"Reached {units.rate(best)} bus bandwidth{of}. {unknown}{test.expectation}."
    if test.wrong:
        rows = units.count(test.wrong, "row has", "rows have")
        yield f"{rows} wrong values: broken hardware or a broken library. Do not use these hosts."
