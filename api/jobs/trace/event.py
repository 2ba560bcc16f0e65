"""Single events of the trace format, and times as it has them. Pure.

The format is Google's "Trace Event Format": JSON objects whose ``ph`` is their kind. Times are
microseconds, with a fraction, from the trace's own beginning: as large as they are since 1970, the
nanoseconds would be lost in a double.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from collector.contract.identity import printable

Event = dict[str, Any]

NS_PER_US = 1_000
TEXT_CHARS_MAX = 500
"""Of a name or a sentence in a trace: names come from outside, and every event repeats its own."""


class Place(NamedTuple):
    """Where an event is drawn: a process and a thread of it."""

    process: int
    thread: int


class Frame(NamedTuple):
    """The stretch of time that a trace shows, unix nanoseconds; its beginning is the trace's 0."""

    from_ns: int
    to_ns: int

    def at(self, time_ns: int) -> float:
        """A time as events have it; what was before the beginning is at the beginning."""
        return microseconds(max(0, time_ns - self.from_ns))

    def holds(self, time_ns: int) -> bool:
        return self.from_ns <= time_ns <= self.to_ns


def microseconds(length_ns: int) -> float:
    """Nanoseconds as microseconds from which any reader gets the same nanoseconds back.

    Readers multiply by a thousand, and some cut off what is left instead of rounding it. A slice
    would then end a nanosecond after the one that it lies in, and be thrown away.

    >>> int(microseconds(1_001) * 1e3), int(microseconds(570) * 1e3)
    (1001, 570)
    """
    length_us = length_ns / NS_PER_US
    return length_us if int(length_us * 1e3) == length_ns else math.nextafter(length_us, math.inf)


def clean(text: str) -> str:
    return printable(text[:TEXT_CHARS_MAX])


def about(words: Event) -> Event:
    return {name: value for name, value in words.items() if value is not None}


def event_at(phase: str, name: str, place: Place) -> Event:
    return {"ph": phase, "name": name, "pid": place.process, "tid": place.thread}


def named(what: str, place: Place, name: str) -> Event:
    return event_at("M", what, place) | {"args": {"name": clean(name)}}


def sorted_at(what: str, place: Place, index: int) -> Event:
    return event_at("M", what, place) | {"args": {"sort_index": index}}


def stretch(
    frame: Frame, place: Place, name: str, span: tuple[int, int], words: Event | None = None
) -> Event:
    """A slice: something that lasted. What began before the trace begins with it."""
    start_ns = max(span[0], frame.from_ns)
    event = event_at("X", name, place)
    event |= {"ts": frame.at(start_ns), "dur": microseconds(max(0, span[1] - start_ns))}
    if words:
        event["args"] = words
    return event


def moment(frame: Frame, place: Place, name: str, time_ns: int, words: Event) -> Event:
    return event_at("i", name, place) | {"s": "t", "ts": frame.at(time_ns), "args": words}


def level(process: int, name: str, time_us: float, unit: str, value: float) -> Event:
    """A counter's value from this time on; its thread is the process itself."""
    return event_at("C", name, Place(process, process)) | {"ts": time_us, "args": {unit: value}}


def arrow(
    frame: Frame, number: int, name: str, source: tuple[Place, int], target: tuple[Place, int]
) -> tuple[Event, Event]:
    """Each arrow has a number of its own: readers differ in what two ends of one number mean."""
    start, end = (
        event_at(phase, name, place) | {"id": number, "cat": "culprit", "ts": frame.at(time_ns)}
        for phase, (place, time_ns) in (("s", source), ("f", target))
    )
    return start, end | {"bp": "e"}
