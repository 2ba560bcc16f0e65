"""Watermarks of queues as bursts: how much stood in a queue at most, and within which time.

A switch keeps the most that stood in a queue since the mark was last reset, by a reader or by its
own clock. One reading says how much, and not when. Two do: a mark that differs from the one before
was reached between the two readings, whether it rose or was reset in between. A mark that stays
says nothing new. So a burst here is as fine as the readings are apart, and claims no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from collector.contract.model import Event, Reading, Sample, Series
from collector.contract.units import NS

PEAK: Final = "fabric_port_queue_peak_bytes"
KIND: Final = "queue_burst"
LEAST_BYTES: Final = 1_000_000
"""A queue from which on it is a burst: twice where marking of every packet begins at 100 Gb/s."""
EVENTS_MAX: Final = 256
"""Of one switch in one round: more queues at once are no burst, but a switch that is full. The
samples are all there."""
SECONDS_MAX: Final = 600
"""Two readings further apart say too little about when."""


class Peaks:
    """The last mark of every queue of one switch."""

    def __init__(self) -> None:
        self._last: dict[Series, tuple[float, int]] = {}

    def with_bursts(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """These readings, and an event behind each mark that is new."""
        events = 0
        for reading in readings:
            yield reading
            if isinstance(reading, Sample) and reading.series.metric == PEAK:
                event = self.note(reading)
                if event is not None and events < EVENTS_MAX:
                    events += 1
                    yield event

    def note(self, sample: Sample) -> Event | None:
        """The burst that a mark tells of; None: none, or none that has a time."""
        before = self._last.get(sample.series)
        self._last[sample.series] = float(sample.value), sample.time_ns
        if before is None or sample.value < LEAST_BYTES or sample.value == before[0]:
            return None
        seconds = (sample.time_ns - before[1]) / NS
        if not 0 < seconds <= SECONDS_MAX:
            return None
        labels = dict(sample.series.labels)
        queue = labels.pop("queue", "")
        which = f"queue {queue} of " if queue else "a queue of "
        return Event(
            time_ns=sample.time_ns,
            kind=KIND,
            labels=labels,
            message=(
                f"{sample.value / 1e6:.1f} MB stood in {which}{labels.get('port', '')} of "
                f"{labels.get('host', '')} at some moment of the last {seconds:.3g} s"
            ),
            attributes={
                "queue": queue,
                "peak_bytes": f"{sample.value:.0f}",
                "milliseconds": f"{seconds * 1000:.0f}",
            },
        )
