"""The checker of traces notices every way in which one can be wrong."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.oracles.trace_format import Event, check


def meta(what: str, pid: int, tid: int, **words: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": words}


def slice_of(name: str, ts: float, dur: float, tid: int = 10) -> Event:
    return {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}


def flow(phase: str, ts: float, tid: int, **more: str) -> Event:
    words = {"ph": phase, "id": 1, "cat": "culprit", "name": "slows down", "pid": 1}
    return {**words, "tid": tid, "ts": ts, **more}


def good() -> dict[str, Any]:
    """A trace with a slice in a slice, an arrow, a moment and a counter."""
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [
            meta("process_name", 1, 1, name="node0"),
            meta("thread_name", 1, 10, name="rank 0"),
            meta("thread_name", 1, 11, name="rank 1"),
            meta("thread_sort_index", 1, 11, sort_index=3),
            slice_of("all_reduce", 1.0, 9.0),
            slice_of("transfer", 4.0, 6.0),
            slice_of("all_reduce", 10.0, 2.0),
            slice_of("all_reduce", 2.0, 8.0, tid=11),
            flow("s", 4.5, 10),
            flow("f", 5.0, 11, bp="e"),
            {"ph": "i", "name": "begins", "pid": 1, "tid": 10, "ts": 3.0, "s": "t"},
            {"ph": "C", "name": "sent", "pid": 1, "ts": 0, "args": {"Gb/s": 1.5}},
        ],
    }


Spoil = Callable[[list[Event]], object]
SPOILED: dict[str, Spoil] = {
    "phase": lambda events: events[4].update(ph="Q"),
    "missing": lambda events: events[4].pop("dur"),
    "unknown": lambda events: events[4].update(duration=3),
    "ts is no time": lambda events: events[4].update(ts=-0.001),
    "dur is no time": lambda events: events[4].update(dur="9"),
    "tid is no positive number": lambda events: events[4].update(tid=0),
    "no name": lambda events: events[4].update(name=""),
    "ends after the slice": lambda events: events[5].update(dur=6.5),
    "bound to no slice": lambda events: events[8].update(ts=0.5),
    "ends before it begins": lambda events: events[8].update(ts=6.0),
    "flows with one end": lambda events: events.pop(8),
    "a flow id twice": lambda events: events.append(dict(events[8])),
    "two names": lambda events: events[8].update(name="other"),
    "bp": lambda events: events[9].update(bp="x"),
    "scope": lambda events: events[10].update(s="x"),
    "without a number": lambda events: events[11].update(args={"Gb/s": "1.5"}),
    "told twice": lambda events: events.insert(3, dict(events[1])),
    "no name yet": lambda events: events.append(events.pop(1)),
    "metadata": lambda events: events[1].update(args={"title": "x"}),
    "a thread of two processes": lambda events: events.insert(
        1, meta("thread_name", 2, 11, name="rank 9")
    ),
}


def test_a_good_trace_passes() -> None:
    trace = check(json.dumps(good()).encode())
    assert len(trace.slices_on("rank 0")) == 3
    assert trace.names("process_name") == {(1, 1): "node0"}


@pytest.mark.parametrize("fault", SPOILED)
def test_every_fault_is_named(fault: str) -> None:
    document = good()
    SPOILED[fault](document["traceEvents"])
    with pytest.raises(AssertionError, match=fault):
        check(json.dumps(document).encode())


def test_what_only_python_takes_for_json_is_refused() -> None:
    text = json.dumps(good()).replace("1.5", "NaN")
    with pytest.raises(ValueError, match="NaN is no JSON"):
        check(text.encode())
    with pytest.raises(ValueError, match="a name twice"):
        check(b'{"displayTimeUnit":"ms","traceEvents":[{"ph":"M","ph":"M"}]}')


def test_the_unit_must_come_first() -> None:
    document = good()
    late = {"traceEvents": document["traceEvents"], "displayTimeUnit": "ms"}
    with pytest.raises(AssertionError, match="displayTimeUnit"):
        check(json.dumps(late).encode())
