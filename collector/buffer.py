"""Readings on their way from the sources to the spool: collected, numbered, written as batches.

One batch in a few seconds instead of one a read: the table of series, which is most of a small
batch, is sent that much less often.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from collector.contract import wire
from collector.contract.model import Event, Missing, Sample
from collector.exposition import missing_series
from collector.meter import Meter
from collector.schedule import Report
from collector.spool import DROPPED_SAMPLES, Spool

BATCH_SAMPLES_MAX = 50_000
"""Samples of one batch: at 20 bytes a megabyte unpacked, an eighth of what a body may have even if
nothing of it could be compressed. A fuller buffer is written at once, as several batches."""
BATCH_EVENTS_MAX = 1_000
BUFFER_SAMPLES_MAX = 200_000
"""Samples in memory while the disk does not take them: about 30 MB. More are dropped, counted."""
BUFFER_EVENTS_MAX = 10_000

log = logging.getLogger(__name__)


class Buffer:
    """What was read and is not on disk yet. `publish` is for any thread."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._samples: list[Sample] = []
        self._events: list[Event] = []
        self.is_full = threading.Event()
        """Set when the buffer wants to be flushed before its time."""
        meter.add(DROPPED_SAMPLES, 0, reason="buffer_full")

    def publish(self, report: Report) -> None:
        """Take what is new in this report; a named absence travels as a sample, too."""
        samples: list[Sample] = []
        events: list[Event] = []
        for reading in report.readings[report.fresh :]:
            if isinstance(reading, Sample):
                samples.append(reading)
            elif isinstance(reading, Missing):
                series = missing_series(reading, report.source)
                samples.append(Sample(series, 1.0, report.time_ns))
            else:
                events.append(reading)
        self.add(samples, events)

    def add(self, samples: list[Sample], events: list[Event] | None = None) -> None:
        """Take these; what does not fit is dropped and counted."""
        events = events or []
        with self._lock:
            room = max(0, BUFFER_SAMPLES_MAX - len(self._samples))
            events_room = max(0, BUFFER_EVENTS_MAX - len(self._events))
            self._samples += samples[:room]
            self._events += events[:events_room]
            is_full = len(self._samples) >= BATCH_SAMPLES_MAX
        dropped = max(0, len(samples) - room) + max(0, len(events) - events_room)
        if dropped:
            self._meter.add(DROPPED_SAMPLES, dropped, reason="buffer_full")
        if is_full:
            self.is_full.set()

    def take(self) -> tuple[list[Sample], list[Event]]:
        """Everything, leaving the buffer empty."""
        with self._lock:
            taken = self._samples, self._events
            self._samples, self._events = [], []
            self.is_full.clear()
        return taken


class Flusher:
    """Turns the buffer's content into batches in the spool. For one thread at a time."""

    def __init__(
        self,
        buffer: Buffer,
        spool: Spool,
        *,
        agent: str,
        common: Mapping[str, str],
        meter: Meter,
        now_ns: Callable[[], int],
    ) -> None:
        self._buffer = buffer
        self._spool = spool
        self._agent = agent
        self._common = dict(common)
        self._meter = meter
        self._now_ns = now_ns

    def flush(self) -> None:
        """Write what was read since the last time, with the agent's own numbers beside it."""
        now_ns = self._now_ns()
        self._buffer.add(self._meter.samples(now_ns))
        samples, events = self._buffer.take()
        while samples or events:
            batch = wire.pack_batch(
                samples[:BATCH_SAMPLES_MAX],
                events[:BATCH_EVENTS_MAX],
                agent=self._agent,
                boot=self._spool.boot,
                sequence=self._spool.next_sequence,
                sent_ms=now_ns // wire.NS_PER_MS,
                common=self._common,
            )
            self._spool.put(wire.encode_batch(batch), samples=batch.sample_count)
            samples, events = samples[BATCH_SAMPLES_MAX:], events[BATCH_EVENTS_MAX:]
