"""What the writer of rows says of them, for processes that keep answers about their tables."""

from __future__ import annotations

from base64 import b64encode

import msgspec
import numpy as np
import pyarrow as pa

from api.base.process_limits import INSERT_NOTE_BYTES_MAX
from api.data.store.insert_log import Note
from api.data.store.known import RECORDS, SERIES
from api.data.store.touched import Ints, group_of, places_of

NOTE_HEADER = "X-Fabricscope-Note"
"""Of an insert over HTTP through the process that owns the store."""


def note_of(table: str, rows: pa.Table) -> Note:
    """What others must know of an insert; nothing of tables of which none keeps answers."""
    if table == SERIES:
        return Note(table, names=rows["metric_name"].unique().to_pylist())
    if table == RECORDS:
        return Note(table, stretches=places_of(*record_places(rows)))
    return Note(table)


def packed_note(note: Note) -> bytes:
    """For the process that owns the store; empty: all that is kept of the table is of no use."""
    packed = msgspec.msgpack.encode(note)
    is_of_use = (note.names or note.stretches) and len(packed) <= INSERT_NOTE_BYTES_MAX
    return packed if is_of_use else b""


def headers_of(packed: bytes) -> dict[str, str]:
    """The note as a header; none where there is nothing to say."""
    return {NOTE_HEADER: b64encode(packed).decode()} if packed else {}


def record_places(rows: pa.Table) -> tuple[Ints, Ints]:
    """Times (ns) and groups of the records of collectives."""
    names = rows["communicator"].unify_dictionaries().combine_chunks()
    if isinstance(names, pa.ChunkedArray):  # no rows, or one chunk: pyarrow returns either
        names = names.chunk(0) if names.num_chunks else pa.array([], pa.string())
    if not isinstance(names, pa.DictionaryArray):
        names = names.dictionary_encode()
    found = [group_of(str(name)) for name in names.dictionary.to_pylist()]
    groups = np.array(found, np.int64)[names.indices.to_numpy(zero_copy_only=False)]
    return rows["time"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy(), groups
