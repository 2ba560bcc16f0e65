"""Records of collectives as columns, from blocks of a snapshot straight to the wire.

No object is made for a record: the constant part of a rank (its `Context`) is made once and
numbered, and everything else is numpy until `tobytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collector.contract.records import NUMBERS, Collectives, Context
from simulator.snapshot import Counts

Places = NDArray[np.intp]
"""Positions in some other column."""


class Records(NamedTuple):
    """Some records of one host."""

    context: Places
    numbers: Counts
    """[7, records]: a line for each of the wire's columns."""


class Contexts:
    """The constant parts of a host's records, numbered: each host has numbers of its own."""

    def __init__(self, hosts: int) -> None:
        self._numbers: list[dict[Context, int]] = [{} for _ in range(hosts)]
        self._lists: list[list[Context]] = [[] for _ in range(hosts)]

    def number(self, host: int, context: Context) -> int:
        numbers = self._numbers[host]
        number = numbers.setdefault(context, len(numbers))
        if number == len(self._lists[host]):
            self._lists[host].append(context)
        return number

    def of_host(self, host: int) -> Sequence[Context]:
        return self._lists[host]


def join_records(parts: Sequence[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Records(np.zeros(0, dtype=np.intp), np.zeros((len(NUMBERS), 0), dtype=np.int64))
    context = np.concatenate([part.context for part in parts])
    return Records(context, np.concatenate([part.numbers for part in parts], axis=1))


def split_records(records: Records, most: int) -> list[Records]:
    """The same in pieces of at most so many."""
    starts = range(0, len(records.context), most)
    return [
        Records(records.context[start : start + most], records.numbers[:, start : start + most])
        for start in starts
    ]


def pack_records(records: Records, contexts: Sequence[Context]) -> Collectives:
    """The wire format; the table holds only contexts that are used."""
    used, place = np.unique(records.context, return_inverse=True)
    columns = {
        name: column.astype("<i8", copy=False).tobytes()
        for name, column in zip(NUMBERS, records.numbers, strict=True)
    }
    return Collectives(
        contexts=[contexts[number] for number in used.tolist()],
        context=place.astype("<u4").tobytes(),
        **columns,
    )


class Gathered:
    """Records of one tick of all hosts, sorted by host on demand."""

    def __init__(self) -> None:
        self._parts: list[tuple[Places, Places, Counts]] = []
        self._sorted: tuple[Places, Places, Counts] | None = None

    def add(self, host: Places, context: Places, numbers: Counts) -> None:
        self._parts.append((host, context, numbers))
        self._sorted = None

    def of_host(self, host: int) -> Records | None:
        if not self._parts:
            return None
        if self._sorted is None:
            self._sorted = self._sort()
        hosts, context, numbers = self._sorted
        start, stop = np.searchsorted(hosts, (host, host + 1))
        if start == stop:
            return None
        return Records(context[start:stop], numbers[:, start:stop])

    def _sort(self) -> tuple[Places, Places, Counts]:
        hosts = np.concatenate([part[0] for part in self._parts])
        order = np.argsort(hosts, kind="stable")
        context = np.concatenate([part[1] for part in self._parts])[order]
        numbers = np.concatenate([part[2] for part in self._parts], axis=1)[:, order]
        return hosts[order], context, numbers
