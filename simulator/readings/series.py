"""Rows of a batch's series table, and the order of their numbers.

A source of the agent becomes a `Section`: its rows for a host, which hardly ever change, and at
every tick a vector of numbers in the order of those rows. An absent number is NaN: the row is then
left out, as an agent leaves out a series without a value.

Memory: a host of 8 NICs and 8 GPUs has about 3,400 rows, which are kept packed (0.3 MB), and as
rows that hosts of one kind share; so 128 hosts take 40 MB and 4,096 hosts over a gigabyte.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from collector.contract.identity import Labels, canonical_labels
from collector.contract.model import Event
from collector.contract.reason import UnreadReason
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats

Row = tuple[str, Labels]
"""A metric and its canonical labels; rows sort as the agent's batches are sorted."""
Rows = tuple[Row, ...]
"""Compared by identity: a section returns the same object while its rows do not change."""

PAIRS_SHARED_MAX, LABELS_SHARED_MAX, ROWS_SHARED_MAX = 20_000, 4_096, 8_192
"""Labels and rows that are made once for all hosts: one host has 3,400 rows, and the next one says
nearly all of them again. Apart they take a gigabyte of 1,024 hosts."""
MISSING_METRIC = "fabric_agent_reading_missing"
"""The metric of a named absence (as in the agent's exposition)."""
ABSENT = np.nan


def make_row(metric: str, labels: Mapping[str, str] | None = None) -> Row:
    """The row of a series; empty labels are left out, as in every series."""
    return shared_row(metric, shared_labels(canonical_labels(labels or {})))


@lru_cache(maxsize=PAIRS_SHARED_MAX)
def shared_pair(name: str, value: str) -> tuple[str, str]:
    """Equal ones are one object, as are the labels and rows that are made of them."""
    return name, value


@lru_cache(maxsize=LABELS_SHARED_MAX)
def shared_labels(labels: Labels) -> Labels:
    return tuple(shared_pair(name, value) for name, value in labels)


@lru_cache(maxsize=ROWS_SHARED_MAX)
def shared_row(metric: str, labels: Labels) -> Row:
    return metric, labels


def missing_row(row: Row, reason: UnreadReason, source: str) -> Row:
    metric, labels = row
    absence = {"metric": metric, "reason": reason.value, "source": source}
    return make_row(MISSING_METRIC, {**dict(labels), **absence})


class Section(Protocol):
    """What one source of the agent reports, for all hosts at once."""

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        """Read new data of the hosts whose agents read now; others stay as they were."""

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:
        """Forget the state that agents lose when they start, and when their host boots."""

    def rows(self, host: int) -> Rows:
        """The rows of a host: the same object until something about them changes."""

    def values(self, host: int) -> Floats:
        """A number for each row; NaN where there is none."""

    def events(self, host: int) -> list[Event]:
        """Events since the last tick, by the host's clock."""


class Columns(NamedTuple):
    """The sample columns of a batch and the table that they point into, packed."""

    series: msgspec.Raw
    place: NDArray[np.uint32]
    time_ms: NDArray[np.int64]
    value: Floats


NO_COLUMNS = Columns(
    msgspec.Raw(msgspec.msgpack.encode([])),
    np.zeros(0, dtype=np.uint32),
    np.zeros(0, dtype=np.int64),
    np.zeros(0),
)


class Every(Container[str]):
    """All metrics."""

    def __contains__(self, metric: object) -> bool:
        return True


EVERY = Every()


class Table:
    """The series table of one host: rows of all sections in the order of the wire."""

    def __init__(self, wanted: Container[str] = EVERY) -> None:
        """``wanted``: the metrics whose rows it has."""
        self._wanted = wanted
        self._parts: tuple[Rows, ...] = ()
        self._order: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._shown = b""
        self._packed = msgspec.Raw(b"")
        self._place: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        """Of each row that is shown: its place in the packed table."""

    def holds(self, parts: tuple[Rows, ...]) -> bool:
        return len(parts) == len(self._parts) and all(
            one is other for one, other in zip(parts, self._parts, strict=True)
        )

    def arrange(self, parts: tuple[Rows, ...]) -> None:
        """Arrange other rows; costs a few milliseconds."""
        rows = [row for part in parts for row in part]
        self._parts = parts
        wanted = [place for place, (metric, _) in enumerate(rows) if metric in self._wanted]
        self._order = np.array(sorted(wanted, key=rows.__getitem__), dtype=np.intp)
        self._shown = b""

    def columns(self, times_ms: Sequence[int], frames: Sequence[Floats]) -> Columns:
        """Samples by series, then by time; ``frames``: a number for each row, by section."""
        values = np.array([frame[self._order] for frame in frames])
        is_there = ~np.isnan(values)
        is_shown: Bools = np.logical_or.reduce(is_there, axis=0)
        if (shown := is_shown.tobytes()) != self._shown:
            self._shown, self._packed = shown, self._pack(is_shown)
            self._place = np.cumsum(is_shown, dtype=np.uint32) - np.uint32(1)
        series, frame = np.nonzero(is_there.T)
        times = np.asarray(times_ms, dtype=np.int64)
        return Columns(self._packed, self._place[series], times[frame], values[frame, series])

    def _pack(self, is_shown: Bools) -> msgspec.Raw:
        rows = [row for part in self._parts for row in part]
        shown = self._order[is_shown].tolist()
        table = [(rows[place][0], dict(rows[place][1])) for place in shown]
        return msgspec.Raw(msgspec.msgpack.encode(table))
