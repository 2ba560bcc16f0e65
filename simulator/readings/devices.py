"""Base of sections about devices: constant rows on every host, and one matrix of numbers.

`Devices` are several of them as one: a tick puts their matrices together once for all hosts.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np

from collector.contract.counters import Width
from collector.contract.model import Event
from simulator.readings.series import Rows
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Floats


class DeviceSection(abc.ABC):
    """A source whose rows are the same at every tick; see `Section`."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts
        self.matrix: Floats = np.zeros((hosts, 0))
        """The numbers of each host, in the order of its rows."""

    @abc.abstractmethod
    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        """Read new data and `show` them."""

    @abc.abstractmethod
    def make_rows(self, host: int) -> Rows: ...

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: B027
        """Does nothing: a section without state needs no restart."""

    def events(self, host: int) -> list[Event]:  # noqa: ARG002 - a section's signature
        return []

    def show(self, columns: Sequence[Floats | Counts]) -> None:
        """Take the columns of all devices; devices of a host stand together."""
        by_device = np.column_stack(columns).astype(np.float64)
        self.matrix = by_device.reshape(self._hosts, -1)


class Devices:
    """Sections of devices as one `Section`."""

    def __init__(self, hosts: int, sections: Sequence[DeviceSection]) -> None:
        self._sections = sections
        self._matrix: Floats = np.zeros((hosts, 0))
        self._rows: list[Rows | None] = [None] * hosts

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        for section in self._sections:
            section.read(snapshot, is_read)
        self._matrix = np.concatenate([section.matrix for section in self._sections], axis=1)

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:
        for section in self._sections:
            section.restart(started, booted)

    def rows(self, host: int) -> Rows:
        rows = self._rows[host]
        if rows is None:
            made = (section.make_rows(host) for section in self._sections)
            rows = self._rows[host] = tuple(row for part in made for row in part)
        return rows

    def values(self, host: int) -> Floats:
        numbers: Floats = self._matrix[host]
        return numbers

    def events(self, host: int) -> list[Event]:
        return [event for section in self._sections for event in section.events(host)]


class Extenders:
    """Narrow counters that wrap, as numbers that only a reset lowers: the agent's rule, for many.

    A counter that fell has wrapped if the way forward over its end is less than half its range;
    else it was reset, and its value is what was counted since.
    """

    def __init__(self, width: Width, devices: int, counters: int) -> None:
        self._range = 1 << width.bits
        self._raw: Counts = np.full((devices, counters), -1, dtype=np.int64)
        self._extended: Counts = np.zeros((devices, counters), dtype=np.int64)

    def extend(self, raw: Counts, is_read: Bools) -> Counts:
        """The extended numbers; those of devices that no agent reads stay as they are."""
        forward = raw - self._raw
        has_fallen = forward < 0
        forward += np.where(has_fallen, self._range, 0)
        is_anew = (self._raw < 0) | (has_fallen & (forward >= self._range // 2))
        extended = np.where(is_anew, raw, self._extended + forward)
        self._extended = np.where(is_read[:, np.newaxis], extended, self._extended)
        self._raw = np.where(is_read[:, np.newaxis], raw, self._raw)
        return self._extended

    def forget(self, devices: Bools) -> None:
        """Restart these: their host has booted."""
        self._raw[devices] = -1
