"""What was inserted lately, in memory that the processes of one service share.

The process that owns an embedded store adds an entry after each insert and before it answers; the
others read on from where they were, without a question. So a process that looks here first knows of
every insert that was acknowledged to anybody, and may answer from its own memory.

The memory is a ring of bytes. Its first words are the number of the writer's life, up to where it
may be writing now, and up to where it has written, both counted from the beginning of all. A reader
that was overtaken, and one that meets another life of the writer, is told so and begins anew: what
it had may lack inserts. Mapped before the fork, so that it has no name and needs no cleaning up.
"""

from __future__ import annotations

import mmap
import struct
import threading
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec
import numpy as np

from api.base.process_limits import INSERT_LOG_BYTES

WORDS: Final = 3
LIFE, BEGUN, WRITTEN = range(WORDS)
WORDS_BYTES: Final = 64
"""A cache line of its own."""
FRAME: Final = struct.Struct("<IIB")
"""Of an entry: bytes that follow, their checksum, its kind."""
LARGEST_SHARE: Final = 4
"""An entry that takes more than one part in so many of the log is left out, and said to be."""


class Kind(IntEnum):
    """What an entry is about."""

    SAMPLES = 1
    """Its body is the block of `samples`, as ClickHouse's Native format has it."""
    NOTED = 2
    """Its body is the note that came with the insert (`Note`)."""
    FAILED = 3
    """An insert into the table that its body names failed; some of its rows may be there."""
    UNKNOWN = 4
    """Something was inserted into the table that its body names."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What the writer of rows says of them, for those who keep answers."""

    table: str
    names: list[str] = []
    """Metrics of new rows of `series`."""
    stretches: list[int] = []
    """Stretches of time and groups of names with new rows (`api.data.store.touched`)."""


class Entry(msgspec.Struct, frozen=True):
    """One insert."""

    kind: Kind
    body: bytes


class InsertLog:
    """One a service. One process writes, from any thread; any number of others read."""

    def __init__(self, size: int = INSERT_LOG_BYTES) -> None:
        """``size``: bytes of entries that are kept."""
        self.size = size
        self._memory = mmap.mmap(-1, WORDS_BYTES + size)
        self._words = np.frombuffer(self._memory, np.uint64, WORDS)
        self._bytes = memoryview(self._memory)[WORDS_BYTES:]
        self._lock = threading.Lock()

    # --- writing -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new life of the writer: readers begin anew, as the last one may have told less."""
        with self._lock:
            self._words[LIFE] += np.uint64(1)
            self._words[BEGUN] = self._words[WRITTEN]

    def add(self, kind: Kind, body: bytes) -> None:
        """An insert that can be read by now; ``body`` is not kept."""
        if len(body) > self.size // LARGEST_SHARE:
            raise ValueError(f"{len(body)} bytes in a log of {self.size}")
        entry = FRAME.pack(len(body), zlib.crc32(body), kind) + body
        with self._lock:
            written = int(self._words[WRITTEN])
            self._words[BEGUN] = written + len(entry)
            self._put(written, entry)
            self._words[WRITTEN] = written + len(entry)

    def takes(self, length: int) -> bool:
        """Whether a body of so many bytes may be an entry."""
        return length <= self.size // LARGEST_SHARE

    def _put(self, at: int, entry: bytes) -> None:
        place = at % self.size
        first = min(len(entry), self.size - place)
        self._bytes[place : place + first] = entry[:first]
        self._bytes[: len(entry) - first] = entry[first:]

    # --- reading -------------------------------------------------------------------------------

    @property
    def head(self) -> tuple[int, int]:
        """The writer's life, and up to where it has written."""
        return int(self._words[LIFE]), int(self._words[WRITTEN])

    def read(self, life: int, begin: int, end: int) -> list[Entry] | None:
        """The entries between two heads of one life; None: some of them are gone."""
        if end - begin > self.size:
            return None
        place = begin % self.size
        first = min(end - begin, self.size - place)
        copied = bytes(self._bytes[place : place + first])
        copied += bytes(self._bytes[: end - begin - first])
        is_whole = int(self._words[LIFE]) == life and int(self._words[BEGUN]) - begin <= self.size
        if not is_whole:
            return None
        try:
            return list(entries_in(copied))
        except ValueError:  # written over meanwhile, on a machine that orders writes freely
            return None


def entries_in(copied: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(copied):
        if len(copied) - at < FRAME.size:
            raise ValueError("an entry is cut")
        length, checksum, kind = FRAME.unpack_from(copied, at)
        at += FRAME.size
        body = copied[at : at + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            raise ValueError("an entry is not what was written")
        yield Entry(Kind(kind), body)
        at += length
