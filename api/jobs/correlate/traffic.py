"""A job's traffic from the store: operations and messages added up, counters, a few records.

The store adds up, so that an hour of a thousand ranks comes back as a few thousand rows. The
duration of an operation is that of the rank that was inside for the shortest time: it came last,
and did not wait. That needs no common clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from alerts.traffic.flows import FUSED, RECEIVE, SEND, Messages, Sums, paired
from alerts.window.columns import Codes, Floats, Records
from alerts.window.split import PAIRWISE
from api.data.store.store import Store
from api.jobs.correlate.meanings import Choice, all_names
from api.jobs.correlate.read import (
    SETTINGS,
    SOURCES_TIMED,
    Question,
    encoded,
    read_members,
    thinned_by,
)
from api.jobs.correlate.readings import GAP_SECONDS, SERIES_ASKED_MAX
from api.jobs.correlate.window import JobRanks
from collector.contract.collective import Operation
from collector.contract.identity import metric_id
from collector.contract.records import ABSENT

RECORDS_MAX = 500_000
"""Records that one matrix adds up, a quarter of a second's work. Of a longer time, or a larger job,
some slices of the time are read, and stand for all of it."""
SLICES = 2
"""Evenly spread over the time, so that a job that changes is seen before and after. Few, because
the store reads some thousand records of every communicator wherever one begins."""
COUNTED_SHARE = 1 / 32
"""Of the time, in which records are counted to know how many there are."""
WHOLE_NS = 60 * 1_000_000_000
"""A time so short is counted whole."""
ROWS_MAX = 200_000
"""Rows of sums, and of pairs of ranks: 10,240 ranks with twenty different sends each. Past it
those with the most operations are kept."""
QUIET_QUANTILE = 0.25
"""Of the times that one end was inside messages of one size: those in which it did not wait for the
other end. The two ends number their messages each by itself, so that they cannot be compared one by
one."""
NUMBERED = "nccl_inspector"
"""The source whose operations agents thin: to those whose number a power of two divides."""
COVERED_MIN = 0.8
"""Of the time, that a counter must have been read in for its increase to be compared."""
RHYTHM_RANKS_MAX = 8
"""Ranks, each of another host, whose records give the rhythm."""
RHYTHM_RECORDS_MAX = 16_000
"""Of them together: five minutes of eight ranks with six operations a second. Of a longer time, or
a busier job, the latest part is read."""

SUMS_SQL = """
    SELECT communicator, operation, algorithm_name AS algorithm, size_bytes, toInt32(size) AS ranks,
           count() AS seen, sum(inside_ns) AS inside_ns,
           groupBitOr(sequence) AS bits
    FROM (
        SELECT communicator, operation, sequence, any(collectives.algorithm) AS algorithm_name,
               max(ifNull(collectives.size_bytes, {absent})) AS size_bytes,
               any(collectives.ranks) AS size,
               min(ifNull(toUnixTimestamp64Nano(exit) - toUnixTimestamp64Nano(entry),
                          duration_ns)) AS inside_ns
        FROM collectives
        WHERE {where} AND operation NOT IN {{pairwise:Array(String)}} {sliced}
        GROUP BY communicator, operation, sequence
    )
    GROUP BY communicator, operation, algorithm, size_bytes, ranks
    ORDER BY seen DESC, communicator, operation, size_bytes LIMIT {limit}
"""
PAIRS_SQL = """
    SELECT communicator, operation, toInt32(rank) AS rank, peer_rank, toInt32(size) AS ranks,
           count() AS seen, sum(message_bytes) AS bytes,
           quantile({quantile})(inside_ns) * seen AS inside_ns,
           groupBitOr(sequence) AS bits
    FROM (
        SELECT communicator, operation, sequence, rank,
               ifNull(collectives.peer, -1) AS peer_rank,
               max(ifNull(collectives.size_bytes, 0)) AS message_bytes,
               any(collectives.ranks) AS size,
               min(ifNull(toUnixTimestamp64Nano(exit) - toUnixTimestamp64Nano(entry),
                          duration_ns)) AS inside_ns
        FROM collectives
        WHERE {where} AND operation IN {{pairwise:Array(String)}} {sliced}
        GROUP BY communicator, operation, sequence, rank, peer_rank
    )
    GROUP BY communicator, operation, rank, peer_rank, ranks, message_bytes
    ORDER BY seen DESC, communicator, operation, rank, peer_rank LIMIT {limit}
"""
KINDS: Mapping[str, int] = {
    Operation.SEND: SEND,
    Operation.RECV: RECEIVE,
    Operation.SEND_RECV: FUSED,
}


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A job's operations in a stretch of time, added up."""

    source: str
    sums: list[Sums]
    messages: Messages
    records: int
    """Of the whole time, about."""
    seen: int
    """Operations and messages of which records were read."""
    counted: float
    """Estimate of all, from those."""
    share: float


class Found(NamedTuple):
    """A job's records in a stretch of time, before they are read: of the best source with any."""

    source: str
    question: Question
    records: int
    """About."""


def find_records(store: Store, job_rank: JobRanks, from_ns: int, to_ns: int) -> Found:
    communicators = sorted({communicator for communicator, _ in job_rank})
    asked = [Question(communicators, from_ns, to_ns, [source]) for source in SOURCES_TIMED]
    for source, question in zip(SOURCES_TIMED, asked, strict=True):
        if records := estimate(store, question):
            return Found(source, question, records)
    return Found(SOURCES_TIMED[0], asked[0], 0)


def read_traffic(store: Store, found: Found) -> Read:
    """The job's operations that ended in this time."""
    share = min(1.0, RECORDS_MAX / max(found.records, 1))
    adder = Adder(store, found.question, share, is_thinned=found.source == NUMBERED)
    sums = [adder.sums()]
    messages = adder.messages()
    if adder.spread is not None:
        sums.append(adder.spread)
    return Read(
        source=found.source,
        sums=sums,
        messages=messages,
        records=found.records,
        seen=adder.seen,
        counted=adder.counted,
        share=share,
    )


def newest_of(store: Store, found: Found) -> int | None:
    """The time of the last of these records; None: there is none."""
    question = found.question
    newest = "toUnixTimestamp64Nano(max(time)) AS newest, count() AS n"
    sql = f"SELECT {newest} FROM collectives WHERE {question.where}"  # noqa: S608 - our words
    (row,) = store.query(sql, question.parameters).to_pylist()
    return int(row["newest"]) if row["n"] else None


def estimate(store: Store, question: Question) -> int:
    """About how many records there are: those of a part of the time are counted, if it has any.

    0: there is none.
    """
    from_ns, to_ns = question.parameters["from_ns"], question.parameters["to_ns"]
    for share in (COUNTED_SHARE, 1.0) if to_ns - from_ns > WHOLE_NS else (1.0,):
        where = f"{question.where} {sliced(from_ns, to_ns, share)}"
        sql = f"SELECT count() AS n FROM collectives WHERE {where}"  # noqa: S608 - our words
        counted = int(store.query(sql, question.parameters)["n"][0].as_py())
        if counted:
            return round(counted / share)
    return 0


def sliced(from_ns: int, to_ns: int, share: float) -> str:
    """A condition on time: this share of it, in the middles of SLICES equal parts."""
    if share >= 1.0:
        return ""
    edges = [from_ns + (to_ns - from_ns) * place // SLICES for place in range(SLICES + 1)]
    parts = []
    for low, high in itertools.pairwise(edges):
        margin = int((high - low) * (1 - share) / 2)
        ends = (f"fromUnixTimestamp64Nano({at})" for at in (low + margin, high - margin))
        parts.append(f"time BETWEEN {' AND '.join(ends)}")
    return f"AND ({' OR '.join(parts)})"


class Adder:
    """Reads sums from the store and counts the operations seen."""

    def __init__(self, store: Store, question: Question, share: float, *, is_thinned: bool) -> None:
        self._store = store
        self._question = question
        self._share = share
        self._is_thinned = is_thinned
        self.seen = 0
        self.counted = 0.0
        self.spread: Sums | None = None

    def _ask(self, sql: str) -> Any:  # noqa: ANN401 - pyarrow's table
        parameters = {**self._question.parameters, "pairwise": sorted(PAIRWISE)}
        text = sql.format(
            where=self._question.where,
            sliced=sliced(parameters["from_ns"], parameters["to_ns"], self._share),
            absent=ABSENT,
            limit=ROWS_MAX,
            quantile=QUIET_QUANTILE,
        )
        return self._store.query(text, parameters, settings=SETTINGS)

    def _scale(self, table: Any, *groups: Codes) -> Floats:  # noqa: ANN401 - pyarrow's table
        """For each row: how many operations each one seen stands for."""
        seen = table["seen"].to_numpy().astype(np.float64)
        scale = np.full(len(seen), 1.0 / self._share)
        if self._is_thinned and len(seen):
            packed = np.zeros(len(seen), dtype=np.int64)
            for codes in groups:
                packed = packed * (int(codes.max(initial=0)) + 1) + codes
            _, group = np.unique(packed, return_inverse=True)
            scale *= thinned_by(group, table["bits"].to_numpy(), seen)
        self.seen += int(seen.sum())
        self.counted += float((seen * scale).sum())
        return scale

    def sums(self) -> Sums:
        table = self._ask(SUMS_SQL)
        communicators, communicator = encoded(table["communicator"])
        operations, operation = encoded(table["operation"])
        algorithms, algorithm = encoded(table["algorithm"])
        scale = self._scale(table, communicator, operation)
        return Sums(
            communicators=communicators,
            operations=operations,
            algorithms=algorithms,
            communicator=communicator,
            operation=operation,
            algorithm=algorithm,
            size_bytes=table["size_bytes"].to_numpy().astype(np.int64),
            ranks=table["ranks"].to_numpy().astype(np.int32),
            count=table["seen"].to_numpy() * scale,
            transfer_ns=known_times(table["inside_ns"]) * scale,
        )

    def messages(self) -> Messages:
        table = self._ask(PAIRS_SQL)
        communicators, communicator = encoded(table["communicator"])
        operations, operation = encoded(table["operation"])
        rank = table["rank"].to_numpy().astype(np.int32)
        ranks = table["ranks"].to_numpy().astype(np.int32)
        # Sends and receives of a rank share one numbering; each has two ends.
        scale = self._scale(table, communicator, rank)
        bytes_ = table["bytes"].to_numpy().astype(np.float64) * scale
        took = known_times(table["inside_ns"]) * scale
        # The engine's dictionaries may hold words that no row has.
        kind = np.array([KINDS.get(name, SEND) for name in [*operations, ""]])[operation]
        peer = table["peer_rank"].to_numpy().astype(np.int32)
        peer = np.where((peer < 0) & (ranks == 2) & (rank < 2), 1 - rank, peer)  # noqa: PLR2004
        named = peer >= 0
        lost = ~named & (kind != RECEIVE)
        if lost.any():
            self.spread = Sums(
                communicators=communicators,
                operations=[Operation.SEND_RECV],
                algorithms=[""],
                communicator=communicator[lost],
                operation=np.zeros(int(lost.sum()), dtype=np.int32),
                algorithm=np.zeros(int(lost.sum()), dtype=np.int32),
                # Each rank's own: the mean of the communicator's.
                size_bytes=(bytes_[lost] / np.maximum(ranks[lost], 1)).astype(np.int64),
                ranks=ranks[lost],
                count=np.ones(int(lost.sum())),
                transfer_ns=took[lost] / np.maximum(ranks[lost], 1),
            )
        return paired(
            communicators,
            communicator=communicator[named],
            rank=rank[named],
            peer=peer[named].astype(np.int32),
            kind=kind[named].astype(np.int32),
            totals=(bytes_[named], took[named]),
        )


def known_times(column: Any) -> Floats:  # noqa: ANN401 - pyarrow's column
    """Nanoseconds; 0 where no source timed it."""
    times: Floats = column.to_numpy().astype(np.float64)
    return np.maximum(np.nan_to_num(times, nan=0.0), 0.0)


# Counters ----------------------------------------------------------------------------------------

PORT_COUNTER = "fabric_port_transmit_bytes_total"
NIC_COUNTER = "fabric_nic_transmit_bytes_total"
"""What NICs count. A port's own counter outranks its interface's, which does not see RDMA."""
NAMED = """
    metric_name IN {names:Array(String)} AND day >= toDate({from_s:Int64})
    AND day <= toDate({to_s:Int64})
    AND arrayExists(value -> value IN {hosts:Array(String)}, mapValues(labels))
"""
NAMES_SQL = f"""
    SELECT series, any(metric_name) AS name, any(labels) AS words FROM series
    WHERE {NAMED} GROUP BY series
"""  # noqa: S608 - our words
LISTED = "PREWHERE series IN {series:Array(UInt64)} WHERE"
"""Which series there are was asked before, for their labels; their rows are read first."""
FOUND = f"WHERE series IN (SELECT series FROM series WHERE {NAMED}) AND"  # noqa: S608 - our words
"""Of more series than can be listed."""
GROWN_SQL = f"""
    WITH arraySort(point -> point.1, groupArray((time_ms, value))) AS points,
         arrayPopBack(points) AS before, arrayPopFront(points) AS after,
         arrayMap(
             (a, b) -> if(b.2 >= a.2 AND b.1 > a.1 AND b.1 - a.1 <= {GAP_SECONDS * 1000},
                          greatest(least(b.1, {{to_ms:Int64}}) - greatest(a.1, {{from_ms:Int64}}),
                                   0), 0),
             before, after) AS inside,
         arrayMap((a, b, ms) -> if(ms > 0, (b.2 - a.2) * ms / (b.1 - a.1), 0),
                  before, after, inside) AS grown
    SELECT metric, series, arraySum(inside) AS covered_ms, arraySum(grown) AS amount
    FROM (
        SELECT metric, series, toUnixTimestamp64Milli(time) AS time_ms, value AS value FROM samples
        {LISTED} metric IN {{metrics:Array(UInt32)}}
          AND time > fromUnixTimestamp64Milli({{from_ms:Int64}} - {GAP_SECONDS * 1000})
          AND time <= fromUnixTimestamp64Milli({{to_ms:Int64}} + {GAP_SECONDS * 1000})
    )
    WHERE isFinite(value)
    GROUP BY metric, series
"""  # noqa: S608 - our words


def read_counted(
    store: Store,
    nics: Sequence[tuple[str, str]],
    netdevs: Mapping[tuple[str, str], tuple[str, str]],
    from_ns: int,
    to_ns: int,
) -> Floats:
    """NaN where it was not read. ``netdevs`` gives the device behind each (host, interface)."""
    place = {nic: row for row, nic in enumerate(nics)}
    found = np.full((2, len(nics)), np.nan)
    known = all_names([Choice(metric, metric) for metric in (PORT_COUNTER, NIC_COUNTER)])
    from_ms, to_ms = from_ns // 1_000_000, to_ns // 1_000_000
    asked = {
        "names": list(known),
        "from_s": from_ms // 1000 - GAP_SECONDS,
        "to_s": to_ms // 1000 + GAP_SECONDS,
        "hosts": sorted({host for host, _ in nics}),
    }
    labels = {
        row["series"]: (row["name"], dict(row["words"]))
        for row in (store.query(NAMES_SQL, asked).to_pylist() if nics else [])
    }
    parameters = {
        **asked,
        "metrics": [metric_id(name) for name in known],
        "from_ms": from_ms,
        "to_ms": to_ms,
    }
    rows = grown(store, parameters, sorted(labels))
    for row in rows:
        name, words = labels[row["series"]]
        key = known[name].key(words, ("host", "device"))
        is_interface = known[name].choice.metric == NIC_COUNTER
        if key is not None and row["covered_ms"] >= COVERED_MIN * (to_ms - from_ms) > 0:
            nic = (key[0], key[1])
            at = place.get(netdevs.get(nic, nic) if is_interface else nic)
            if at is not None:
                line = found[int(is_interface)]
                whole = row["amount"] * known[name].factor * (to_ms - from_ms) / row["covered_ms"]
                line[at] = whole if np.isnan(line[at]) else line[at] + whole
    best: Floats = np.where(np.isnan(found[0]), found[1], found[0])
    return best


def grown(store: Store, parameters: dict[str, Any], series: list[int]) -> list[dict[str, Any]]:
    if not series:
        return []
    if len(series) > SERIES_ASKED_MAX:
        table = store.query(GROWN_SQL.replace(LISTED, FOUND), parameters)
    else:
        table = store.query(GROWN_SQL, {**parameters, "series": series})
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


# Some ranks' records -----------------------------------------------------------------------------


def read_some(
    store: Store,
    job_rank: JobRanks,
    hosts: Mapping[int, str],
    found: Found,
    span_ns: tuple[int, int],
) -> tuple[Records, dict[tuple[str, int], int]]:
    """One rank each of some ``hosts``, by its own clock; of too many records the latest."""
    lowest: dict[str, int] = {}
    for rank in sorted(hosts):
        lowest.setdefault(hosts[rank] or str(rank), rank)
    ranks = sorted(lowest.values())
    count = min(RHYTHM_RANKS_MAX, len(ranks))
    chosen = {ranks[place * len(ranks) // count] for place in range(count)}
    members = {key: rank for key, rank in job_rank.items() if rank in chosen}
    from_ns, to_ns = span_ns
    expected = found.records * len(members) // max(len(job_rank), 1)
    if expected > RHYTHM_RECORDS_MAX:
        from_ns = to_ns - (to_ns - from_ns) * RHYTHM_RECORDS_MAX // expected
    communicators = sorted({name for name, _ in members})
    question = Question(communicators, from_ns, to_ns, [found.source])
    return read_members(store, question, sorted(members)), members
