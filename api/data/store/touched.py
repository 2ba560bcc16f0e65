"""When each stretch of time was last written to: what makes an answer about the past stale.

Answers about whole stretches of the past are kept, and most of them never change. Data that come
late change some. Every insert is numbered here, and the stretches and groups of names that it has
rows of get its number; who keeps an answer notes the latest number before reading, and holds it
valid until a stretch that was read has a higher one. Only for a store of whose inserts this process
knows (`api.data.store.known`).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from collector.contract.units import NS

STRETCH_NS = 10 * NS
"""Late data make stretches of this length stale: twice an agent's interval."""
STRETCHES_MAX = 8_640
"""A day of them, 1.1 MB for each table. What is written to earlier ones makes all those stale."""
GROUPS = 16
"""Names are told apart by a digest of so many values: a job whose records come late makes one in so
many of the others' answers stale as well."""
SPAN_MAX = 1 << 20
"""Stretches between an insert's first and last that are counted in a table; else they are
sorted."""

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]


class Touched:
    """One a table; for any thread. ``is_complete``: whether every insert is noted here.

    ``catch_up`` notes what others have inserted, before anything is answered.
    """

    def __init__(
        self, *, is_complete: bool = True, catch_up: Callable[[], None] = lambda: None
    ) -> None:
        self.is_complete = is_complete
        self._catch_up = catch_up
        self._lock = threading.Lock()
        self._number = 0
        self._all = 0
        """The latest insert of which nobody knows what it had."""
        self._stretches: dict[int, Numbers] = {}
        self._forgotten: tuple[int, int] = (-1, 0)
        """The latest stretch that is not kept any more, and the latest insert into any of them."""

    @property
    def number(self) -> int:
        """The latest insert. Ask before reading what is to be kept."""
        self._catch_up()
        return self._number

    def note(self, time_ns: Ints, groups: Ints | None = None) -> None:
        """An insert that can be read by now, row by row; ``groups`` None: all are of the first."""
        if len(time_ns):
            self.note_places(places_of(time_ns, groups))

    def note_places(self, places: Iterable[int]) -> None:
        """An insert that can be read by now, by what `places_of` makes of its rows."""
        with self._lock:
            self._number += 1
            for place in places:
                self._mark(*divmod(place, GROUPS))
            self._forget()

    def note_all(self) -> None:
        """An insert that can be read by now and may have had anything."""
        with self._lock:
            self._number += 1
            self._all = self._number

    def latest(self, from_ns: int, to_ns: int, groups: Iterable[int] = (0,)) -> int:
        """The latest insert with rows of a time, both ends included, and of one of the groups."""
        first, last = from_ns // STRETCH_NS, to_ns // STRETCH_NS
        chosen = sorted(set(groups))
        self._catch_up()
        with self._lock:
            found = self._all
            if first <= self._forgotten[0]:
                found = max(found, self._forgotten[1])
            stretches = range(first, last + 1)
            if len(stretches) > len(self._stretches):
                stretches = [each for each in self._stretches if first <= each <= last]  # type: ignore[assignment]
            for stretch in stretches:
                numbers = self._stretches.get(stretch)
                if numbers is not None:
                    found = max(found, int(numbers[chosen].max(initial=0)))
        return found

    def _mark(self, stretch: int, group: int) -> None:
        if stretch <= self._forgotten[0]:
            self._forgotten = (self._forgotten[0], self._number)
            return
        numbers = self._stretches.get(stretch)
        if numbers is None:
            numbers = self._stretches[stretch] = np.zeros(GROUPS, np.int64)
        numbers[group] = self._number

    def _forget(self) -> None:
        if len(self._stretches) <= STRETCHES_MAX:
            return
        for stretch in sorted(self._stretches)[: len(self._stretches) - STRETCHES_MAX]:
            latest = int(self._stretches.pop(stretch).max())
            self._forgotten = (stretch, max(self._forgotten[1], latest))


def places_of(time_ns: Ints, groups: Ints | None = None) -> list[int]:
    """The stretches and groups in which rows lie, each as one number; None: all of the first."""
    if not len(time_ns):
        return []
    group = np.zeros(len(time_ns), np.int64) if groups is None else groups
    places: list[int] = distinct(time_ns // STRETCH_NS * GROUPS + group).tolist()
    return places


def group_of(name: str) -> int:
    return zlib.crc32(name.encode()) % GROUPS


def distinct(values: Ints) -> Ints:
    """The values that occur. By a table where they are close together, as times of one insert are.

    >>> distinct(np.array([7, 5, 7])).tolist()
    [5, 7]
    """
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > SPAN_MAX:
        return np.unique(values)
    is_there = np.zeros(span, np.bool_)
    is_there[values - low] = True
    return np.flatnonzero(is_there) + low
