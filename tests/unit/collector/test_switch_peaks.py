"""Watermarks of queues: a burst is as fine as two readings are apart."""

import pytest

from collector.contract.model import Event, Sample, Series
from collector.contract.units import NS
from collector.switches.peaks import EVENTS_MAX, PEAK, Peaks

LABELS = {"host": "leaf1", "device": "leaf1", "port": "Ethernet8", "queue": "3"}


def told(*marks: tuple[float, float]) -> list[Event]:
    """The bursts of one queue, by seconds and marks."""
    peaks, series = Peaks(), Series(PEAK, LABELS)
    readings = [Sample(series, mark, int(second * NS)) for second, mark in marks]
    return [each for each in peaks.with_bursts(readings) if isinstance(each, Event)]


def test_a_mark_that_rose_was_reached_between_two_readings() -> None:
    (burst,) = told((0, 1e3), (10, 4.2e6))
    assert burst.time_ns == 10 * NS
    assert burst.labels == {"host": "leaf1", "device": "leaf1", "port": "Ethernet8"}
    assert burst.attributes == {"queue": "3", "peak_bytes": "4200000", "milliseconds": "10000"}
    assert burst.message == (
        "4.2 MB stood in queue 3 of Ethernet8 of leaf1 at some moment of the last 10 s"
    )


def test_a_mark_that_was_reset_and_is_high_again_is_a_new_burst() -> None:
    assert [each.attributes["peak_bytes"] for each in told((0, 9e6), (10, 4e6), (20, 5e6))] == [
        "4000000",
        "5000000",
    ]


@pytest.mark.parametrize(
    "marks",
    [
        [(0, 9e6)],  # the first reading says nothing about when
        [(0, 9e6), (10, 9e6), (20, 9e6)],  # nothing has reset it
        [(0, 0.0), (10, 999_999.0)],  # less than a burst
        [(0, 0.0), (700, 9e6)],  # too long ago to say when
        [(10, 0.0), (10, 9e6)],  # no time between them
    ],
)
def test_what_tells_no_time_is_no_burst(marks: list[tuple[float, float]]) -> None:
    assert told(*marks) == []


def test_a_switch_that_is_full_tells_of_some_queues_and_keeps_all_samples() -> None:
    peaks = Peaks()
    rows = [Series(PEAK, LABELS | {"port": str(number)}) for number in range(EVENTS_MAX + 10)]
    list(peaks.with_bursts(Sample(row, 0.0, 0) for row in rows))
    found = list(peaks.with_bursts(Sample(row, 5e6, 10 * NS) for row in rows))
    assert sum(isinstance(each, Sample) for each in found) == EVENTS_MAX + 10
    assert sum(isinstance(each, Event) for each in found) == EVENTS_MAX
