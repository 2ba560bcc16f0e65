"""Rows of a group on their way to the process that owns the store, as one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from api.data.store.blocks import Column, encode_block
from api.data.store.frames import Rows
from api.data.store.known import SAMPLES
from api.data.store.notes import note_of, packed_note
from api.data.store.recent import SampleRows
from api.data.store.shards import Bools, UInt32s

Int64s = npt.NDArray[np.int64]


class WritableSamples(SampleRows, Protocol):
    """Samples that know the columns of the `samples` table."""

    @property
    def place(self) -> UInt32s | None: ...

    def to_block(self) -> list[Column]: ...

    def select(self, keep: Bools) -> WritableSamples: ...


class Inserting(Protocol):
    """What takes the rows of a group: a store, which writes them, or a `Together`."""

    def insert_samples(self, samples: WritableSamples) -> None: ...

    def insert_arrow(self, table: str, rows: pa.Table, places: UInt32s | None = None) -> None: ...


class Together:
    """Rows of several tables, in the order in which they were inserted here."""

    def __init__(self) -> None:
        self.rows: list[Rows] = []
        self.parts: list[bytes] = []
        """Of each of `rows`, in its format."""
        self.times: list[tuple[UInt32s, Int64s]] = []
        """Metrics and times of the samples among them."""

    @property
    def length(self) -> int:
        """Bytes of all rows."""
        return sum(map(len, self.parts))

    @property
    def tables(self) -> str:
        return ", ".join(rows.table for rows in self.rows)

    def insert_samples(self, samples: WritableSamples) -> None:
        self.times.append((samples.metric, samples.time_ms))
        columns = samples.to_block()
        names = [column.name for column in columns]
        self._add(SAMPLES, names, "Native", b"".join(encode_block(columns)))

    def insert_arrow(self, table: str, rows: pa.Table, places: UInt32s | None = None) -> None:
        """``places``: of no use, as an embedded store has no shards."""
        del places
        if table == SAMPLES:
            self.times.append(times_of(rows))
        note = packed_note(note_of(table, rows))
        self._add(table, rows.schema.names, "Arrow", encode_arrow(rows), note)

    def _add(
        self, table: str, columns: Sequence[str], form: str, part: bytes, note: bytes = b""
    ) -> None:
        self.rows.append(Rows(table, list(columns), form, note, len(part)))
        self.parts.append(part)


def times_of(rows: pa.Table) -> tuple[UInt32s, Int64s]:
    """Metrics and times (ms) of rows of `samples`."""
    time_ms = rows["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return rows["metric"].to_numpy(), time_ms.to_numpy()


def encode_arrow(rows: pa.Table) -> bytes:
    """Rows as ClickHouse's format Arrow has them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
