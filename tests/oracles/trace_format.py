"""Holds a trace against Google's Trace Event Format: every rule that a viewer relies upon, by name.

Written from the format's description and from what Perfetto's importer does with what breaks it:
slices that overlap are dropped, flows outside of slices are lost, threads are named by number.
"""

from __future__ import annotations

import bisect
import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

REQUIRED = {
    "X": {"name", "pid", "tid", "ts", "dur"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "C": {"name", "pid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "M": {"name", "pid", "tid", "args"},
}
ALLOWED = {
    phase: {"ph", *names, *({"args"} if phase in "Xi" else {"tid"} if phase == "C" else ())}
    for phase, names in REQUIRED.items()
}
METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
NUMBERS = ("ts", "dur")
FAULTS_SHOWN_MAX = 20


@dataclass
class Trace:
    """A trace that was read: its events by phase, and what is wrong with it."""

    document: dict[str, Any]
    faults: list[str] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """All of them, in the order of the file."""
        found: list[Event] = self.document["traceEvents"]
        return found

    def of(self, phase: str) -> list[Event]:
        """Those of one phase."""
        return [event for event in self.events if event["ph"] == phase]

    def names(self, kind: str) -> dict[tuple[int, int], str]:
        """Names of processes or threads, by process and thread."""
        return {
            (event["pid"], event["tid"]): event["args"]["name"]
            for event in self.of("M")
            if event["name"] == kind
        }

    def slices_on(self, *words: str) -> list[Event]:
        """Slices of the threads whose names have all of these words."""
        threads = {
            place
            for place, name in self.names("thread_name").items()
            if all(word in name for word in words)
        }
        return [event for event in self.of("X") if (event["pid"], event["tid"]) in threads]


def refuse_constant(word: str) -> float:
    """JSON has no NaN and no infinity, whatever Python's reader takes."""
    raise ValueError(f"{word} is no JSON")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no name is there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a name twice in {[name for name, _ in pairs]}")
    return found


def check(text: bytes) -> Trace:
    """The trace, after every rule was found to hold."""
    document = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)
    trace = Trace(document)
    if next(iter(document)) != "displayTimeUnit" or document["displayTimeUnit"] not in {"ms", "ns"}:
        trace.faults.append("displayTimeUnit is not first, or neither ms nor ns")
    for event in trace.events:
        check_shape(event, trace.faults)
    if not trace.faults:
        check_metadata(trace)
        check_nesting(trace)
        check_flows(trace)
    assert not trace.faults, "\n".join(trace.faults[:FAULTS_SHOWN_MAX])
    return trace


def check_shape(event: Event, faults: list[str]) -> None:
    """One event by itself: its phase, its fields, and their types."""
    phase = event.get("ph")
    if phase not in REQUIRED:
        faults.append(f"phase {phase!r}: {event}")
        return
    if missing := REQUIRED[phase] - event.keys():
        faults.append(f"{sorted(missing)} missing: {event}")
        return
    if more := event.keys() - ALLOWED[phase]:
        faults.append(f"{sorted(more)} unknown: {event}")
    faults.extend(
        f"{name} is no positive number: {event}"
        for name in ("pid", "tid")
        if not isinstance(event.get(name, 1), int) or event.get(name, 1) <= 0
    )
    for name in NUMBERS:
        value = event.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            faults.append(f"{name} is no time: {event}")
    if not isinstance(event["name"], str) or not event["name"]:
        faults.append(f"no name: {event}")
    if phase == "i" and event["s"] not in {"g", "p", "t"}:
        faults.append(f"scope: {event}")
    if phase == "f" and event["bp"] != "e":
        faults.append(f"bp: {event}")
    if phase == "C" and not all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        for value in event["args"].values() or [None]
    ):
        faults.append(f"a counter without a number: {event}")


def check_metadata(trace: Trace) -> None:
    """Every process and thread is named once, and before it is used; threads by number alone."""
    seen: set[tuple[str, int, int]] = set()
    process_of: dict[int, int] = {}
    for event in trace.events:
        place: tuple[int, int] = (event["pid"], event.get("tid") or event["pid"])
        if event["ph"] != "M":
            if ("process_name", event["pid"], event["pid"]) not in seen:
                trace.faults.append(f"its process has no name yet: {event}")
            if event["ph"] != "C" and ("thread_name", *place) not in seen:
                trace.faults.append(f"its thread has no name yet: {event}")
            continue
        field_name, kind = METADATA.get(event["name"], ("", None))
        if kind is None or not isinstance(event["args"].get(field_name), kind):
            trace.faults.append(f"metadata: {event}")
        if (event["name"], *place) in seen:
            trace.faults.append(f"told twice: {event}")
        seen.add((event["name"], *place))
        if event["name"] == "thread_name" and process_of.setdefault(place[1], place[0]) != place[0]:
            trace.faults.append(f"a thread of two processes: {event}")


def to_ns(event: Event) -> tuple[int, int]:
    """Beginning and end as a reader computes them that cuts off what is left of a nanosecond."""
    start = int(event["ts"] * 1e3)
    return start, start + int(event.get("dur", 0) * 1e3)


def check_nesting(trace: Trace) -> None:
    """Slices of one thread lie within each other or apart, in the order in which they are read."""
    by_thread: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in trace.of("X"):
        by_thread[event["pid"], event["tid"]].append(event)
    for events in by_thread.values():
        # Readers sort by time and keep the file's order among equals.
        open_until: list[int] = []
        for event in sorted(events, key=lambda each: to_ns(each)[0]):
            start, end = to_ns(event)
            while open_until and open_until[-1] <= start:
                open_until.pop()
            if open_until and end > open_until[-1]:
                trace.faults.append(f"ends after the slice that it begins in: {event}")
            open_until.append(end)


def check_flows(trace: Trace) -> None:
    """An arrow has one beginning and one end, not earlier, and both are inside of slices."""
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in trace.of("X"):
        spans[event["pid"], event["tid"]].append(to_ns(event))
    for each in spans.values():
        each.sort()
    starts = {event["id"]: event for event in trace.of("s")}
    ends = {event["id"]: event for event in trace.of("f")}
    if len(starts) != len(trace.of("s")) or len(ends) != len(trace.of("f")):
        trace.faults.append("a flow id twice")
    if starts.keys() != ends.keys():
        trace.faults.append(f"flows with one end: {sorted(starts.keys() ^ ends.keys())[:5]}")
        return
    for number, start in starts.items():
        end = ends[number]
        if (start["cat"], start["name"]) != (end["cat"], end["name"]):
            trace.faults.append(f"flow {number} has two names")
        if to_ns(start)[0] > to_ns(end)[0]:
            trace.faults.append(f"flow {number} ends before it begins")
        for event in (start, end):
            if not is_inside(spans[event["pid"], event["tid"]], to_ns(event)[0]):
                trace.faults.append(f"flow {number} is bound to no slice: {event}")


def is_inside(spans: list[tuple[int, int]], time: int) -> bool:
    """Whether any of these contains a moment; an end is not inside."""
    last = bisect.bisect_right(spans, (time, math.inf))
    return any(end > time for _, end in spans[:last])
