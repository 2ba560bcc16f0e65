"""Several batches of a backlog as one request: what an outage left behind, in few and cheap ones.

A batch has one reading of each series, and its table of series is most of it. The batches of some
minutes have one table together, so that the service looks at it once, and many readings of each
series, which it takes for a third of the price.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

import msgspec

from collector.contract import wire
from collector.contract.errors import WireError
from collector.contract.records import NUMBERS, Collectives, Context

COALESCED_BATCHES_MAX = 60
"""Batches in one request: five minutes at one in five seconds, so an hour is a dozen requests."""
COALESCED_READINGS_MAX = 50_000
"""Readings in one request, unless one batch alone has more: a megabyte unpacked, as the largest
batch that an agent writes."""

Row = tuple[str, tuple[tuple[str, str], ...]]


def coalesce(batches: Sequence[wire.Batch]) -> wire.Batch:
    """These batches, which follow each other, as one of a backlog.

    Raises WireError if a table of series cannot be read, or they are together more than a batch may
    hold.
    """
    last = batches[-1]
    table, index = join_series(batches)
    joined = msgspec.structs.replace(
        last,
        first=batches[0].sequence,
        series=table,
        index=index,
        time_ms=b"".join(batch.time_ms for batch in batches),
        value=b"".join(batch.value for batch in batches),
        events=[event for batch in batches for event in batch.events],
        collectives=join_collectives([one.collectives for one in batches if one.collectives]),
        steps=[step for batch in batches for step in batch.steps],
    )
    wire.check_batch(joined)
    return joined


def join_series(batches: Sequence[wire.Batch]) -> tuple[msgspec.Raw, bytes]:
    """One table of all series, in the order in which an agent writes them, and the rows in it."""
    tables = list(dict.fromkeys(bytes(batch.series) for batch in batches))
    if len(tables) == 1:
        return batches[0].series, b"".join(batch.index for batch in batches)
    read: dict[bytes, list[Row]] = {}
    for batch in batches:
        key = bytes(batch.series)
        if key not in read:
            read[key] = [(name, tuple(own.items())) for name, own in batch.series_rows()]
    rows = sorted({row for table in read.values() for row in table})
    places = {row: place for place, row in enumerate(rows)}
    moved = {key: [places[row] for row in table] for key, table in read.items()}
    index = b"".join(move(batch.index, moved[bytes(batch.series)]) for batch in batches)
    table = msgspec.msgpack.encode([(name, dict(labels)) for name, labels in rows])
    return msgspec.Raw(table), index


def join_collectives(parts: Sequence[Collectives]) -> Collectives | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    places: dict[Context, int] = {}
    context = b""
    for part in parts:
        moved = [places.setdefault(each, len(places)) for each in part.contexts]
        context += move(part.context, moved)
    columns = {name: b"".join(getattr(part, name) for part in parts) for name in NUMBERS}
    return Collectives(contexts=list(places), context=context, **columns)


def move(index: bytes, places: Sequence[int]) -> bytes:
    """Rows of a table (uint32, little-endian) as rows of another; WireError if one is not in it."""
    rows = array("I", index)
    if sys.byteorder == "big":
        rows.byteswap()
    try:
        moved = array("I", map(places.__getitem__, rows))
    except IndexError as error:
        msg = f"a row is {max(rows)}; its table has {len(places)}"
        raise WireError(msg) from error
    if sys.byteorder == "big":
        moved.byteswap()
    return moved.tobytes()
