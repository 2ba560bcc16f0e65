"""Groups of rows of several processes, inserted as one.

What an insert costs hardly depends on its rows: 7 ms of CPU, and later what it takes to merge its
part. Processes that take requests each gather what is sent to them for a second, and send it at
the same moment (`api.data.ingest.commit`); here their groups become one insert into each table, so
that the store has no more of them than one process would make.

No sender is answered before all of it is written. Where an insert of several groups fails, each
group is inserted alone: rows that the engine refuses fail their own group. Rows that are then
written twice are recognised, as those of a request that was sent twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from api.base.process_limits import GATHER_BYTES_MAX, GATHER_SECONDS, OWNER_WAIT_SECONDS
from api.data.store.frames import Rows
from api.data.store.known import SAMPLES, SERIES
from api.data.store.together import encode_arrow

TURN: Final = {SERIES: 0, SAMPLES: 2}
"""Names first, so that no sample is ever without one; samples last, after notes of late ones."""
OTHERS: Final = 1


class Part(msgspec.Struct, frozen=True):
    """Rows of one table, of one group."""

    rows: Rows
    content: bytes


class Insert(msgspec.Struct, frozen=True):
    """One insert: rows of one table, of one group or more."""

    parts: list[Part]

    @property
    def rows(self) -> Rows:
        """What all parts have in common: table, columns and format."""
        return self.parts[0].rows

    def content(self) -> bytes:
        """The rows of all parts, in their format; ValueError where they cannot be put together."""
        contents = [part.content for part in self.parts]
        if len(contents) == 1 or self.rows.form == "Native":  # a stream of blocks
            return b"".join(contents)
        tables = [pa.ipc.open_file(pa.BufferReader(content)).read_all() for content in contents]
        return encode_arrow(pa.concat_tables(tables).unify_dictionaries().combine_chunks())


Group = Sequence[Part]
Execute = Callable[[Insert, dict[str, str]], None]
"""Inserts, with settings of the engine, and tells who must know; raises what went wrong."""


def inserts_of(groups: Sequence[Group]) -> list[Insert]:
    """Rows of the same columns become one insert."""
    found: dict[tuple[str, tuple[str, ...], str], list[Part]] = {}
    for group in groups:
        for part in group:
            rows = part.rows
            found.setdefault((rows.table, tuple(rows.columns), rows.form), []).append(part)
    inserts = [Insert(parts) for parts in found.values()]
    return sorted(inserts, key=lambda insert: TURN.get(insert.rows.table, OTHERS))


class Gathered:
    """Groups that are inserted together."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.groups: list[Group] = []
        self.length = 0
        self.failures: Sequence[Exception | None] = []
        """Of each group, once they were inserted."""
        self.is_done = threading.Event()

    def takes(self, length: int, settings: dict[str, str]) -> bool:
        return self.length + length <= GATHER_BYTES_MAX and settings == self.settings

    def add(self, group: Group, length: int) -> int:
        """Its place."""
        self.groups.append(group)
        self.length += length
        return len(self.groups) - 1


class Gathering:
    """One a store; for any thread, each of which brings a group and waits until it is written.

    The first one waits for others, and inserts for all of them; meanwhile the next ones gather.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._lock = threading.Lock()
        self._open: Gathered | None = None
        self._turn = threading.Lock()

    def insert(self, group: Group, settings: dict[str, str]) -> None:
        """Return when it is written; raise why it is not."""
        length = sum(len(part.content) for part in group)
        with self._lock:
            gathered, is_first = self._open, False
            if gathered is None or not gathered.takes(length, settings):
                gathered, is_first = Gathered(settings), True
                self._open = gathered
            place = gathered.add(group, length)
        if is_first:
            self._write(gathered)
        else:
            gathered.is_done.wait()
        if (failure := gathered.failures[place]) is not None:
            raise failure

    def _write(self, gathered: Gathered) -> None:
        has_turn = False
        failure: Exception = RuntimeError("the insert broke")
        try:
            gathered.is_done.wait(GATHER_SECONDS)
            has_turn = self._turn.acquire(timeout=OWNER_WAIT_SECONDS)
            self._close(gathered)
            if has_turn:
                gathered.failures = self._insert(gathered)
            else:
                failure = NoTurnError()
        finally:
            if has_turn:
                self._turn.release()
            self._close(gathered)
            # Also when something unforeseen broke it: nobody may take silence for success.
            gathered.failures = gathered.failures or [failure] * len(gathered.groups)
            gathered.is_done.set()

    def _close(self, gathered: Gathered) -> None:
        with self._lock:
            if self._open is gathered:
                self._open = None

    def _insert(self, gathered: Gathered) -> Sequence[RuntimeError | None]:
        groups = gathered.groups
        found = self._attempt(groups, gathered.settings)
        if found is None or len(groups) == 1:
            return [found] * len(groups)
        return [self._attempt([group], gathered.settings) for group in groups]

    def _attempt(self, groups: Sequence[Group], settings: dict[str, str]) -> RuntimeError | None:
        try:
            for insert in inserts_of(groups):
                self._execute(insert, settings)
        except RuntimeError as error:
            return error
        except (OSError, ValueError, pa.ArrowException) as error:
            return RuntimeError(f"{type(error).__name__}: {error}")
        return None


class NoTurnError(Exception):
    """Other inserts have run for OWNER_WAIT_SECONDS."""
