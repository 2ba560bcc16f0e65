"""Readings on their way from the sources to the spool: collected, numbered, written as batches.

One batch in a few seconds instead of one a read: the table of series, which is most of a small
batch, is sent that much less often.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from collector.agent.exposition import missing_series
from collector.agent.meter import Meter
from collector.agent.schedule import Report
from collector.agent.spool import DROPPED_SAMPLES, Spool
from collector.contract import wire
from collector.contract.collective import Collective, StepSpan
from collector.contract.model import Event, Missing, Sample
from collector.contract.units import NS_PER_MS

BATCH_SAMPLES_MAX = 50_000
"""Samples of one batch: at 20 bytes a megabyte unpacked, an eighth of what a body may have even if
nothing of it could be compressed. A fuller buffer is written at once, as several batches."""
BATCH_EVENTS_MAX = 1_000
BUFFER_SAMPLES_MAX = 200_000
"""Samples in memory while the disk does not take them: about 30 MB. More are dropped, counted."""
BUFFER_READS = 2
"""Or so many of the largest read there was: one round of 128 switches with all their queues has
600,000 samples, and must not be dropped because it is one round."""
BUFFER_EVENTS_MAX = 10_000
PATIENT_KINDS = frozenset(
    {"burst", "capture", "configuration", "port_drops", "port_talkers", "queue_burst"}
)
"""Events that a healthy host has all the time: they wait for the next batch. All others (a link
that went down, an XID) are news for the on-call person: they are sent at once."""
BATCH_COLLECTIVES_MAX = 20_000
"""A megabyte unpacked, as with samples."""
BUFFER_COLLECTIVES_MAX = 100_000
"""About 40 MB. Sources thin what comes faster than it can be sent."""
BATCH_STEPS_MAX = 5_000
BUFFER_STEPS_MAX = 50_000

log = logging.getLogger(__name__)


class Content:
    """Readings by their kind, each in the order it came."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.events: list[Event] = []
        self.collectives: list[Collective] = []
        self.steps: list[StepSpan] = []

    def __bool__(self) -> bool:
        return bool(self.samples or self.events or self.collectives or self.steps)

    def take(self, news: Content, samples_max: int) -> int:
        """Add what there is room for; returns how much did not fit."""
        return (
            extend(self.samples, news.samples, samples_max)
            + extend(self.events, news.events, BUFFER_EVENTS_MAX)
            + extend(self.collectives, news.collectives, BUFFER_COLLECTIVES_MAX)
            + extend(self.steps, news.steps, BUFFER_STEPS_MAX)
        )

    def split(self) -> Content:
        """As much of the beginning as one batch holds, taken out of this."""
        first = Content()
        first.samples, self.samples = cut(self.samples, BATCH_SAMPLES_MAX)
        first.events, self.events = cut(self.events, BATCH_EVENTS_MAX)
        first.collectives, self.collectives = cut(self.collectives, BATCH_COLLECTIVES_MAX)
        first.steps, self.steps = cut(self.steps, BATCH_STEPS_MAX)
        return first

    @property
    def has_news(self) -> bool:
        """Whether an event is among these that must not wait for the next batch."""
        return any(event.kind not in PATIENT_KINDS for event in self.events)

    @property
    def fills_a_batch(self) -> bool:
        return (
            len(self.samples) >= BATCH_SAMPLES_MAX
            or len(self.collectives) >= BATCH_COLLECTIVES_MAX
            or len(self.steps) >= BATCH_STEPS_MAX
        )


T = TypeVar("T")


def extend(kept: list[T], news: list[T], most: int) -> int:
    room = max(0, most - len(kept))
    kept += news[:room]
    return max(0, len(news) - room)


def cut(items: list[T], count: int) -> tuple[list[T], list[T]]:
    return items[:count], items[count:]


class Buffer:
    """What was read and is not on disk yet. `publish` is for any thread."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._content = Content()
        self._largest = 0
        self.is_urgent = threading.Event()
        """Set when the buffer wants to be flushed before its time."""
        meter.add(DROPPED_SAMPLES, 0, reason="buffer_full")

    def publish(self, report: Report) -> None:
        """Take what is new in this report; a named absence travels as a sample, too."""
        news = Content()
        for reading in report.readings[report.fresh :]:
            if isinstance(reading, Sample):
                news.samples.append(reading)
            elif isinstance(reading, Missing):
                series = missing_series(reading, report.source)
                news.samples.append(Sample(series, 1.0, report.time_ns))
            elif isinstance(reading, Event):
                news.events.append(reading)
            elif isinstance(reading, Collective):
                news.collectives.append(reading)
            else:
                news.steps.append(reading)
        self._add(news)

    def add(self, samples: list[Sample]) -> None:
        """Take these samples; what does not fit is dropped and counted."""
        news = Content()
        news.samples = samples
        self._add(news)

    def _add(self, news: Content) -> None:
        with self._lock:
            self._largest = max(self._largest, len(news.samples))
            samples_max = max(BUFFER_SAMPLES_MAX, BUFFER_READS * self._largest)
            dropped = self._content.take(news, samples_max)
            is_urgent = news.has_news or self._content.fills_a_batch
        if dropped:
            self._meter.add(DROPPED_SAMPLES, dropped, reason="buffer_full")
        if is_urgent:
            self.is_urgent.set()

    def take(self) -> Content:
        with self._lock:
            taken, self._content = self._content, Content()
            self.is_urgent.clear()
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
        content = self._buffer.take()
        while content:
            part = content.split()
            batch = wire.pack_batch(
                part.samples,
                part.events,
                part.collectives,
                part.steps,
                agent=self._agent,
                boot=self._spool.boot,
                sequence=self._spool.next_sequence,
                sent_ms=now_ns // NS_PER_MS,
                common=self._common,
            )
            self._spool.put(wire.encode_batch(batch), samples=batch.reading_count)
