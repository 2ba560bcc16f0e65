"""Processes and threads of a trace, numbered and named as they are first needed. Not thread-safe.

Slices of one thread must lie within each other or apart. What overlaps (two communicators of one
rank run at the same time) goes to lanes: threads of the same kind, beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from api.jobs.trace.event import Event, Place, named, sorted_at
from api.jobs.trace.stream import Account

THREAD_FIRST = 1 << 24
"""Threads are numbered from here, over all processes: readers look names of threads up by number
alone, and a number that is a process' too would be its main thread."""
TRACKS_MAX = 50_000
"""Threads of a trace; a viewer draws thousands. What would need another one is left out, counted.
Ten thousand ranks with five each are less."""
LANES_MAX = 4
"""Threads for what overlaps on one track. A rank's operations on one communicator follow each other
on one stream, so a second is for sends and receives in a group; beyond, it is left out, counted."""


class Track(NamedTuple):
    """A row of the trace: its process' name, its own, and its position in the process."""

    process: str
    name: str
    order: int


class Lane:
    """A thread, and until when it is taken."""

    __slots__ = ("free_ns", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.free_ns = -(1 << 63)


class Tracks:
    """Assigns places. `news` are the names of those that were assigned for the first time."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._processes: dict[str, int] = {}
        self._lanes: dict[Track, list[Lane]] = {}
        self._threads = 0
        self._news: list[Event] = []

    def news(self) -> Iterator[Event]:
        """Names not written yet; they must be written before the events that use them."""
        if self._news:
            pending, self._news = self._news, []
            yield from pending

    def process(self, name: str) -> int:
        """The number of a process; in the order of first use, which is how they are drawn."""
        number = self._processes.get(name)
        if number is None:
            number = self._processes[name] = len(self._processes) + 1
            place = Place(number, number)
            self._news += [
                named("process_name", place, name),
                sorted_at("process_sort_index", place, number),
            ]
        return number

    def place(self, track: Track, start_ns: int, end_ns: int) -> Place | None:
        """None: no thread is left. A stretch out of order takes a lane of its own."""
        lanes = self._lanes.setdefault(track, [])
        for lane in lanes:
            if lane.free_ns <= start_ns:
                break
        else:
            rule = "LANES_MAX" if len(lanes) >= LANES_MAX else ""
            rule = rule or ("TRACKS_MAX" if self._threads >= TRACKS_MAX else "")
            if rule:
                self._account.leave_out(rule)
                return None
            lane = self._new_lane(track, len(lanes))
            lanes.append(lane)
        lane.free_ns = max(end_ns, start_ns)
        return lane.place

    def _new_lane(self, track: Track, number: int) -> Lane:
        self._threads += 1
        place = Place(self.process(track.process), THREAD_FIRST + self._threads)
        name = track.name if not number else f"{track.name} ({number + 1})"
        self._news += [
            named("thread_name", place, name),
            sorted_at("thread_sort_index", place, track.order * LANES_MAX + number),
        ]
        return Lane(place)
