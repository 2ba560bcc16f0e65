"""Records of collectives from the store, as sorted columns."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alerts.window.columns import Codes, Floats, Ints, Records
from api.data.store.store import Store
from collector.contract.errors import StoreError
from collector.contract.records import ABSENT, THIN_MAX

RECORDS_MAX = 8_000_000
"""Records held at once: 80 bytes each, 640 MB. Of more, every nth operation is read, and the store
joins them all (`api.jobs.correlate.join`)."""

SOURCES_TIMED = ("nccl_inspector", "kineto")
"""Sources whose entries and exits can be compared, best first."""

SCALED_MIN = 8
"""Operations of a numbering that must be seen before it counts as thinned by an agent: eight even
numbers in a row are no coincidence."""
SPARSE = 4
"""Where records are in less than one of so many parts of the time that is asked about, pieces of it
would be too long to choose from."""

WHERE = """
    time BETWEEN fromUnixTimestamp64Nano({from_ns:Int64}) AND fromUnixTimestamp64Nano({to_ns:Int64})
    AND source IN {sources:Array(String)}
"""
COLUMNS = f"""
    communicator, operation, toInt64(sequence) AS sequence, toInt32(rank) AS rank, host,
    toInt32(pid) AS pid,
    ifNull(toUnixTimestamp64Nano(entry), {ABSENT}) AS entry_ns,
    ifNull(toUnixTimestamp64Nano(exit), {ABSENT}) AS exit_ns,
    ifNull(toUnixTimestamp64Nano(enqueue), {ABSENT}) AS enqueue_ns,
    ifNull(duration_ns, {ABSENT}) AS duration_ns,
    ifNull(size_bytes, {ABSENT}) AS size_bytes,
    toInt32(ranks) AS ranks, ifNull(peer, -1) AS peer
"""
SEEN_BY = COLUMNS.replace(
    f"ifNull(toUnixTimestamp64Nano(exit), {ABSENT})", "toUnixTimestamp64Nano(ifNull(exit, time))"
)
"""The same, with the moment by which the end was seen where no record has the end itself."""
WITHOUT_EXTRAS = COLUMNS.replace("toInt32(pid)", "toInt32(0)").replace(
    f"ifNull(duration_ns, {ABSENT})", f"toInt64({ABSENT})"
)
"""The same, without what neither steps nor lateness need."""
SETTINGS = {"output_format_arrow_low_cardinality_as_dictionary": "1"}

INTS = ("sequence", "entry_ns", "exit_ns", "enqueue_ns", "duration_ns", "size_bytes")
CODES = ("rank", "pid", "ranks", "peer")


class Question:
    """A query for records: of these communicators (None: all), these sources, in this time."""

    def __init__(
        self, communicators: Sequence[str] | None, from_ns: int, to_ns: int, sources: Sequence[str]
    ) -> None:
        self.parameters: dict[str, Any] = {
            "from_ns": from_ns,
            "to_ns": to_ns,
            "sources": list(sources),
        }
        self.where = WHERE
        if communicators is not None:
            self.parameters["communicators"] = list(communicators)
            self.where += " AND communicator IN {communicators:Array(String)}"

    def narrowed(self, from_ns: int, to_ns: int | None) -> Question:
        """The same query for a part of its time; None: until its end."""
        other = copy(self)
        until = self.parameters["to_ns"] if to_ns is None else to_ns
        other.parameters = {**self.parameters, "from_ns": from_ns, "to_ns": until}
        return other


def count_records(store: Store, question: Question) -> int:
    sql = f"SELECT count() AS n FROM collectives WHERE {question.where}"  # noqa: S608 - our words
    return int(store.query(sql, question.parameters)["n"][0].as_py())


def count_in_pieces(store: Store, question: Question, pieces: int) -> tuple[Ints, Ints]:
    """Records in each equal part, and the edges; of the part of the time with records."""
    first, last = question.parameters["from_ns"], question.parameters["to_ns"]
    counts, edges = np.zeros(pieces, dtype=np.int64), np.zeros(pieces + 1, dtype=np.int64)
    for _ in range(2):
        width = (last - first) // pieces + 1
        sql = f"""
            SELECT intDiv(toUnixTimestamp64Nano(time) - {{first:Int64}}, {{width:Int64}}) AS piece,
                   count() AS n
            FROM collectives WHERE {question.where} GROUP BY piece
        """  # noqa: S608 - our words
        asked = question.narrowed(first, last).parameters
        table = store.query(sql, {**asked, "first": first, "width": width})
        counts = np.zeros(pieces, dtype=np.int64)
        counts[table["piece"].to_numpy().astype(np.int64)] = table["n"].to_numpy().astype(np.int64)
        edges = first + np.arange(pieces + 1, dtype=np.int64) * width
        present = np.flatnonzero(counts)
        if not len(present) or len(counts) < SPARSE * (present[-1] + 1 - present[0]):
            break
        first, last = int(edges[present[0]]), int(edges[present[-1] + 1])
    return counts, edges


def query_slices(store: Store, question: Question, slices: Sequence[tuple[int, int]]) -> Records:
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    for number, (begin, end) in enumerate(slices):
        parts.append(
            f"time BETWEEN fromUnixTimestamp64Nano({{begin{number}:Int64}}) "
            f"AND fromUnixTimestamp64Nano({{end{number}:Int64}})"
        )
        parameters |= {f"begin{number}": begin, f"end{number}": end}
    return query_records(store, question, f" AND ({' OR '.join(parts) or '0'})", parameters)


def read_records(store: Store, question: Question, *, keep_one_in: int = 1) -> Records:
    """``keep_one_in``: every nth operation by number. Raises StoreError past RECORDS_MAX."""
    count = count_records(store, question) // keep_one_in
    if count > RECORDS_MAX:
        raise StoreError(
            f"{count} records of collectives in this time; RECORDS_MAX is {RECORDS_MAX}: "
            "ask about a shorter time"
        )
    return query_records(store, question, keep_one_in=keep_one_in)


def read_members(
    store: Store,
    question: Question,
    members: Sequence[tuple[str, int]],
    *,
    keep_one_in: int = 1,
    rows_max: int | None = None,
) -> Records:
    return query_records(
        store,
        question,
        " AND (communicator, rank) IN {members:Array(Tuple(String, UInt32))}",
        {"members": list(members)},
        keep_one_in=keep_one_in,
        rows_max=rows_max,
    )


def query_records(
    store: Store,
    question: Question,
    more: str = "",
    parameters: dict[str, Any] | None = None,
    *,
    keep_one_in: int = 1,
    columns: str = COLUMNS,
    rows_max: int | None = None,
) -> Records:
    """The records of the question that also fulfil ``more``; the first ``rows_max`` of them.

    Repeats are removed by `to_records`: of a timed record the later one is the whole one, so that
    the store need not merge (FINAL), which costs twice the time and forgoes its index on time.
    """
    return to_records(
        query_table(
            store,
            question,
            more,
            parameters,
            keep_one_in=keep_one_in,
            columns=columns,
            rows_max=rows_max,
        )
    )


def query_table(
    store: Store,
    question: Question,
    more: str = "",
    parameters: dict[str, Any] | None = None,
    *,
    keep_one_in: int = 1,
    columns: str = COLUMNS,
    rows_max: int | None = None,
) -> pa.Table:
    """The same as rows of the store, in the order that `to_records` needs."""
    # Part of the key, so that it can be filtered first, and before repeats are removed.
    thin = "" if keep_one_in == 1 else f"PREWHERE sequence % {int(keep_one_in)} = 0"
    is_timed = set(question.parameters["sources"]) <= set(SOURCES_TIMED)
    final = "" if is_timed else "FINAL"
    sql = f"""
        SELECT {columns} FROM collectives {final} {thin} WHERE {question.where} {more}
        ORDER BY collectives.communicator, collectives.operation, collectives.sequence,
                 collectives.rank, collectives.time, collectives.exit NULLS FIRST
        {"" if rows_max is None else f"LIMIT {int(rows_max)}"}
    """  # noqa: S608 - our words; values are parameters
    return store.query(sql, {**question.parameters, **(parameters or {})}, settings=SETTINGS)


def to_records(table: pa.Table) -> Records:
    """The columns; of two rows for one rank of one operation the later one."""
    return without_repeats(to_rows(table))


def to_rows(table: pa.Table) -> Records:
    """The columns of every row, in the order of the table."""
    names: dict[str, list[str]] = {}
    codes: dict[str, Any] = {}
    for name in ("communicator", "operation", "host"):
        names[name], codes[name] = encoded(table[name])
    return Records(
        communicators=names["communicator"],
        operations=names["operation"],
        hosts=names["host"],
        **codes,
        **{name: table[name].to_numpy().astype(np.int64) for name in INTS},
        **{name: table[name].to_numpy().astype(np.int32) for name in CODES},
    )


def without_repeats(rows: Records) -> Records:
    """Of two rows for one rank of one operation the later one."""
    kept = np.ones(len(rows), dtype=bool)
    if len(rows):
        same = np.ones(len(rows) - 1, dtype=bool)
        for column in (rows.communicator, rows.operation, rows.sequence, rows.rank):
            same &= column[1:] == column[:-1]
        kept[:-1] = ~same
    records: Records = rows.select(kept)
    return records


def with_own_names(records: Records) -> Records:
    """The same without names of other records."""
    names: dict[str, list[str]] = {}
    codes: dict[str, Codes] = {}
    for name in ("communicator", "operation", "host"):
        known = getattr(records, f"{name}s")
        names[f"{name}s"], codes[name] = used(known, getattr(records, name))
    return msgspec.structs.replace(records, **names, **codes)


def used(names: Sequence[str], code: Codes) -> tuple[list[str], Codes]:
    """The names that any row has, in order, and each row's among them."""
    chosen = np.flatnonzero(np.bincount(code, minlength=len(names)))
    if len(chosen) == len(names):
        return list(names), code
    place = np.zeros(len(names), dtype=np.int32)
    place[chosen] = np.arange(len(chosen))
    return [names[number] for number in chosen.tolist()], place[code]


def thinned_by(group: Ints, numbers: npt.NDArray[Any], seen: Floats | None = None) -> Floats:
    """The power of two by which an agent thinned each operation's numbering, by its numbers.

    A numbering of which only multiples of four are there, and SCALED_MIN of them, was thinned by
    four. Gaps of other kinds are not filled: the Inspector leaves small operations out, and they
    share the large ones' numbering. ``seen``: how many operations each row stands for.
    """
    bits = np.zeros(int(group.max(initial=-1)) + 1, dtype=np.uint64)
    np.bitwise_or.at(bits, group, numbers.astype(np.uint64))
    lowest = (bits & (~bits + np.uint64(1))).astype(np.float64)
    is_known = (np.bincount(group, seen) >= SCALED_MIN) & (lowest >= 1)
    by_group: Floats = np.where(is_known, np.minimum(lowest, 2.0**THIN_MAX), 1.0)
    return by_group[group]


def encoded(column: pa.ChunkedArray) -> tuple[list[str], Any]:
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no rows, or one chunk: pyarrow returns either
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    if not isinstance(whole, pa.DictionaryArray):
        whole = whole.dictionary_encode()
    # In the order of the names, so that codes sort as the names do; without those of other rows.
    found = [str(name) for name in whole.dictionary.to_pylist()]
    indices = whole.indices.to_numpy(zero_copy_only=False)
    used = np.flatnonzero(np.bincount(indices, minlength=len(found)))
    names = sorted({found[place] for place in used.tolist()})
    place = {name: number for number, name in enumerate(names)}
    code = np.array([place.get(name, -1) for name in found], dtype=np.int32)
    return names, code[indices]
