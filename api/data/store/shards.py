"""On which shard of a cluster a row stands: beside all else of its host.

A row's *place* is a number of 32 bits: the first bytes of the SHA-256 of its host's name, or where
it is of no host, of what identifies it. The shard is the place modulo the number of shards, counted
from 1 as ClickHouse does. So a series and its samples stand on one shard and can be joined there,
and a row that is sent again comes to the shard that has it, where merges remove the repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from api.base.host_names import HOST_LABELS, INSTANCE, hosts_named
from collector.contract.errors import StoreError

UInt32s = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

PLACE_MASK: Final = (1 << 32) - 1
PLACE_BYTES: Final = 4
PLACES_KEPT_MAX: Final = 1 << 16
"""Names whose places are remembered, about 10 MB: more than a cluster has hosts."""

LABELS: Final = "labels"
KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "series": (LABELS, "series"),
    "events": (LABELS, "id"),
    "collectives": ("host", "communicator"),
    "steps": ("host", "job"),
    "findings": ("host", "id"),
    "metadata": ("", "metric_name"),
}
"""Of a table: the column that has the host, and the one that places rows without a host. Samples
and exemplars have neither: who writes them knows the labels of their series."""


_PLACE_SQL: Final = "reinterpretAsUInt32(SHA256({}))"
INSTANCE_SQL: Final = (
    f"if(startsWith(labels['{INSTANCE}'], '['), extract(labels['{INSTANCE}'], '^.([^\\\\]]*)'), "
    f"replaceRegexpOne(labels['{INSTANCE}'], '^([^:]*):[0-9]+$', '\\\\1'))"
)
"""The host in Prometheus' `instance`: `without_port`."""
_NAMED_SQL: Final = {label: f"labels['{label}']" for label in HOST_LABELS}
_CASES: Final = [
    f"{named} != '', {INSTANCE_SQL if label == INSTANCE else named}"
    for label, named in _NAMED_SQL.items()
]
_HOST_SQL: Final = f"multiIf({', '.join(_CASES)}, '')"
"""The first host that labels name, as `hosts_named` has it; empty: none."""


class Placed(Protocol):
    """Samples with the places of their series; None: who made them knew of no shards."""

    @property
    def place(self) -> UInt32s | None: ...

    def select(self, keep: Bools) -> Self: ...


Chosen = TypeVar("Chosen", bound=Placed)


@lru_cache(PLACES_KEPT_MAX)
def place_of_text(text: str) -> int:
    """The same number as ``reinterpretAsUInt32(SHA256(text))`` in the engine.

    >>> place_of_text("node-1")
    3860567861
    """
    return int.from_bytes(sha256(text.encode()).digest()[:PLACE_BYTES], "little")


def place_of_series(labels: Mapping[str, str], series: int) -> int:
    """By the first host that the labels name; of no host, by the series itself.

    >>> place_of_series({"instance": "node-1:9100"}, 7) == place_of_text("node-1")
    True
    >>> place_of_series({"job": "x"}, (5 << 32) + 7)
    7
    """
    named = hosts_named(labels)
    return place_of_text(named[0]) if named else series & PLACE_MASK


def places_of_rows(table: str, rows: pa.Table) -> UInt32s:
    """Of each row of a table in KEYS."""
    if table not in KEYS:
        raise StoreError(f"rows of {table} need the places of their series: none were given")
    host, other = KEYS[table]
    if missing := {host, other} - {"", *rows.column_names}:
        raise StoreError(f"insert into {table}: the rows have no column {min(missing)}")
    if host == LABELS:
        named = [dict(pairs or ()) for pairs in rows[LABELS].to_pylist()]
        numbers = rows[other].to_pylist()
        found = map(place_of_series, named, numbers)
        return np.fromiter(found, np.uint32, len(numbers))
    others = places_of_column(rows[other])
    if not host:
        return others
    hosts = rows[host].cast(pa.string())
    has_host = pc.not_equal(hosts, "").to_numpy(zero_copy_only=False).astype(np.bool_)
    return np.where(has_host, places_of_column(hosts), others)


def places_of_column(column: pa.ChunkedArray) -> UInt32s:
    """By the texts of a column, each digested once; or by the low bits of its numbers."""
    if pa.types.is_integer(column.type):
        numbers = column.to_numpy().astype(np.uint64)
        low: UInt32s = (numbers & np.uint64(PLACE_MASK)).astype(np.uint32)
        return low
    texts = column.cast(pa.string())
    unique = pc.unique(texts)
    of_unique = np.array([place_of_text(text or "") for text in unique.to_pylist()], np.uint32)
    indices = pc.index_in(texts, value_set=unique)
    found: UInt32s = of_unique[indices.to_numpy()]
    return found


def standing_on(table: str, shard: int, shards: int) -> str:
    """The condition, in SQL, for rows of an unsharded table that stand on this shard."""
    if table not in KEYS:
        named = standing_on("series", shard, shards)
        # Names may be kept for fewer days than samples.
        nameless = f"bitAnd(series, {PLACE_MASK}) % {shards} = {shard - 1}"
        return (
            f"(series IN (SELECT series FROM series WHERE {named}) "  # noqa: S608 - our words
            f"OR {nameless} AND series NOT IN (SELECT series FROM series))"
        )
    host, other = KEYS[table]
    named = {LABELS: _HOST_SQL, "": "''"}.get(host, host)
    is_number = other in {"series", "id"}
    by_other = f"bitAnd({other}, {PLACE_MASK})" if is_number else _PLACE_SQL.format(other)
    place = f"if({named} != '', {_PLACE_SQL.format(named)}, toUInt32({by_other}))"
    return f"{place} % {shards} = {shard - 1}"


def shards_of(places: UInt32s, shards: int) -> Iterator[tuple[int, Bools]]:
    """Of each shard that gets rows: its number, from 1 on, and which rows those are.

    >>> [(number, keep.tolist()) for number, keep in shards_of(np.array([4, 2, 1], np.uint32), 3)]
    [(2, [True, False, True]), (3, [False, True, False])]
    """
    numbers = places % np.uint32(shards) + np.uint32(1)
    for number in np.unique(numbers).tolist():
        yield number, numbers == number


def split_rows(
    table: str, rows: pa.Table, shards: int, places: UInt32s | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Of each shard that gets rows: its number and its rows, in their order."""
    if not rows.num_rows:
        return
    found = places_of_rows(table, rows) if places is None else places
    for number, keep in shards_of(found, shards):
        yield number, rows if keep.all() else rows.filter(pa.array(keep))


def split_samples(samples: Chosen, shards: int) -> Iterator[tuple[int, Chosen]]:
    """Likewise. A sample alone does not say which host it is of."""
    if samples.place is None:
        raise StoreError("samples need the places of their series: none were given")
    for number, keep in shards_of(samples.place, shards):
        yield number, samples.select(keep)
