"""Compares the calls of a job's ranks by their Flight Recorder dumps, which are read a second time.

The store has operations and sizes, but neither types nor the program's frames, and no more than one
of several calls under one number. So dumps of a job in trouble are read again, and nothing of them
is kept but a few numbers a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alerts.window.columns import Ints
from alerts.window.model import Calls, Side
from api.diagnose.find import Found, Stream
from api.diagnose.sets import Collection
from api.diagnose.throw_away import ThrowAwayStore
from collector.contract.communicator import group_communicator, parse_ranks
from collector.contract.errors import ParseError
from collector.formats.flight_recorder import load_dump
from collector.parsing.torch_calls import Call, calls_of

DUMPS_MAX = 4096
"""Dumps that are read again: some minutes."""
CALLS_MAX = 10_000_000
"""Calls that are compared: 240 MB. Later dumps are left out."""
SIDES_MAX = 8

DIFFER_SQL = """
    SELECT count() > 0 AS differ FROM (
        SELECT communicator, sequence FROM collectives FINAL
        WHERE communicator IN {communicators:Array(String)} AND source = 'flight_recorder'
          AND operation NOT IN ('send', 'recv', 'send_recv')
        GROUP BY communicator, sequence
        HAVING uniqExact((operation, size_bytes)) > 1 LIMIT 1
    )
"""


def may_differ(store: ThrowAwayStore, communicators: Iterable[str]) -> bool:
    """Whether the store has ranks with other operations or sizes under one number."""
    names = sorted(communicators)
    if not names:
        return False
    rows = store.rows("collectives", DIFFER_SQL, {"communicators": names})
    return bool(rows) and bool(rows[0]["differ"])


class Group(NamedTuple):
    """A process group: its names here and for people, and how many ranks it has."""

    communicator: str
    name: str
    size: int


class Table:
    """Calls of all ranks as columns, and each distinct call's words and frames once."""

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.words: dict[str, int] = {}
        self.frames: dict[tuple[str, ...], int] = {}
        self._parts: list[Ints] = []
        self._count = 0

    def add(self, rank: int, calls: Iterable[tuple[Group, Call]]) -> bool:
        """Take a dump's calls; false past CALLS_MAX."""
        rows = []
        for group, call in calls:
            self.names.setdefault(group.communicator, group.name)
            self.sizes.setdefault(group.communicator, group.size)
            rows.append(
                (
                    number_of(self.groups, group.communicator),
                    call.sequence,
                    rank,
                    number_of(self.words, call.words),
                    number_of(self.frames, call.frames),
                    call.time_ns,
                    call.is_done,
                )
            )
        self._count += len(rows)
        if rows:
            self._parts.append(np.array(rows, dtype=np.int64))
        return self._count < CALLS_MAX

    def rows(self) -> Ints:
        """Group, number, rank, words, frames, time, done; sorted by group and number."""
        if not self._parts:
            return np.zeros((0, 7), dtype=np.int64)
        rows: Ints = np.concatenate(self._parts)
        return rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]


def number_of(table: dict[Any, int], key: object) -> int:
    return table.setdefault(key, len(table))


def compare_calls(
    dumps: Iterable[tuple[str, int, Found]], collections: Iterable[Collection]
) -> list[Calls]:
    """For each group the first number under which its ranks' calls differ."""
    by_key = {one.key: one for one in collections}
    table = Table()
    for count, (key, rank, found) in enumerate(dumps):
        collection = by_key.get(key)
        if collection is None:
            continue
        if count >= DUMPS_MAX or not table.add(rank, read_calls(found, collection)):
            break
    rows = table.rows()
    differing = []
    for group in table.groups.values():
        own = rows[rows[:, 0] == group]
        calls = first_difference(own, table) or one_ahead(own, table)
        if calls is not None:
            differing.append(calls)
    return differing


def read_calls(found: Found, collection: Collection) -> Iterator[tuple[Group, Call]]:
    """The calls of a dump with their groups; those of unknown groups are left out."""
    try:
        with Path(found.path).open("rb") as file:
            dump, cut = load_dump(Stream(file))  # type: ignore[arg-type]
    except (ParseError, OSError):
        return
    if cut is not None:
        return  # what it does not show may have been in it: its rank would seem to be behind
    groups: dict[str, Group | None] = {}
    for call in calls_of(dump):
        if call.group not in groups:
            groups[call.group] = group_of(dump, call.group, collection)
        group = groups[call.group]
        if group is not None:
            yield group, call


def group_of(dump: Mapping[str, object], name: str, collection: Collection) -> Group | None:
    config = dump.get("pg_config")
    own = config.get(name) if isinstance(config, dict) else None
    ranks = own.get("ranks") if isinstance(own, dict) else None
    if not isinstance(own, dict) or not isinstance(ranks, str):
        return None
    members = parse_ranks(ranks.strip().strip("[]").replace(" ", ""))
    if members is None:
        return None
    described = own.get("desc")
    is_named = isinstance(described, str) and described not in ("", "undefined")
    return Group(
        communicator=group_communicator(name, members) + collection.suffix,
        name=str(described if is_named else name)[:64],
        size=len(members),
    )


def first_difference(rows: Ints, table: Table) -> Calls | None:
    """The first number whose calls are not all alike; rows of one group, by number and rank."""
    if not len(rows):
        return None
    starts = np.flatnonzero(np.concatenate([[True], rows[1:, 1] != rows[:-1, 1]]))
    least, most = np.minimum.reduceat(rows[:, 3], starts), np.maximum.reduceat(rows[:, 3], starts)
    differing = np.flatnonzero(least != most)
    if not len(differing):
        return None
    first = rows[rows[:, 1] == rows[starts[differing[0]], 1]]
    words, frames = list(table.words), list(table.frames)
    sides = [
        Side(
            ranks=tuple(own[:, 2].tolist()),
            call=words[kind],
            frames=frames[int(own[0, 4])],
        )
        for kind in np.unique(first[:, 3]).tolist()
        if len(own := first[first[:, 3] == kind])
    ]
    return to_calls(first, sides, table, is_ahead=False)


def one_ahead(rows: Ints, table: Table) -> Calls | None:
    """Of calls that are all alike: ranks that wait in one more, while no other waits for any."""
    if not len(rows):
        return None
    last_of = {rank: rows[rows[:, 2] == rank][-1] for rank in np.unique(rows[:, 2]).tolist()}
    top = max(int(row[1]) for row in last_of.values())
    ahead = [rank for rank, row in last_of.items() if int(row[1]) == top]
    behind = [rank for rank, row in last_of.items() if int(row[1]) != top]
    waits = all(not last_of[rank][6] for rank in ahead)
    rests = all(last_of[rank][6] and int(last_of[rank][1]) == top - 1 for rank in behind)
    size = table.sizes[list(table.groups)[int(rows[0, 0])]]
    if not behind or not waits or not rests or len(last_of) < size or len(ahead) >= len(behind):
        return None
    words, frames = list(table.words), list(table.frames)
    row = last_of[ahead[0]]
    sides = [
        Side(ranks=tuple(behind), call=""),
        Side(ranks=tuple(ahead), call=words[int(row[3])], frames=frames[int(row[4])]),
    ]
    return to_calls(row.reshape(1, -1), sides, table, is_ahead=True)


def to_calls(rows: Ints, sides: list[Side], table: Table, *, is_ahead: bool) -> Calls:
    communicator = list(table.groups)[int(rows[0, 0])]
    return Calls(
        communicator=communicator,
        name=table.names[communicator],
        sequence=int(rows[0, 1]),
        sides=tuple(sides[:SIDES_MAX]),
        time_ns=int(rows[:, 5].min()),
        is_ahead=is_ahead,
    )
