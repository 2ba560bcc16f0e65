"""The join over ranks inside the store: for jobs whose records do not fit into memory.

It gives what `alerts.window.split.split` gives, row for row, from any number of records; where two
ranks entered at the same nanosecond it may name the other one. Repeats that are not merged yet
change none of it (a timed record never changes), so that the engine need not look for them: FINAL
would take five times as long.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from alerts.window.columns import ClockFit, Operations
from alerts.window.split import PAIRWISE, all_bus_bytes, distinct, reduced, starts_of
from api.data.store.store import Store
from api.jobs.correlate.read import SETTINGS, Question, encoded
from collector.contract.records import ABSENT

JOIN_SECONDS_MAX = "60"
JOIN = """
    SELECT communicator, operation, toInt64(sequence) AS sequence,
           max(ifNull(size_bytes, {absent})) AS size_bytes, toInt32(max(ranks)) AS ranks,
           toInt32(uniqExact(rank)) AS ranks_seen,
           min(e) AS first_entry_ns, max(e) AS last_entry_ns,
           min(x) AS first_exit_ns, max(x) AS last_exit_ns,
           toInt32(argMax(rank, e)) AS last_in, toInt32(argMin(rank, x - e)) AS least_inside,
           toInt32(argMax(rank, x)) AS last_out, min(x - e) AS inside_ns
    FROM (
        SELECT communicator, operation, sequence, rank, ranks, size_bytes,
               toUnixTimestamp64Nano(assumeNotNull(entry)) AS raw_entry,
               toUnixTimestamp64Nano(assumeNotNull(exit)) AS raw_exit,
               {entry} AS e, {exit} AS x
        FROM collectives
        WHERE {where} AND entry IS NOT NULL AND exit IS NOT NULL
              AND operation NOT IN {{pairwise:Array(String)}}
    )
    GROUP BY communicator, operation, sequence
"""
AHEAD = """
    transform(toString(host), {{hosts:Array(String)}}, {{offsets:Array(Int64)}}, toInt64(0))
    + toInt64(round(
        transform(toString(host), {{hosts:Array(String)}}, {{drifts:Array(Float64)}}, 0.0)
        * ({time} - {{middle:Int64}})
    ))
"""


def split_in_store(store: Store, question: Question, fits: list[ClockFit]) -> Operations:
    """One row for each operation of which any rank was timed, on the common clock."""
    if not any(clock.is_corrected for fit in fits for clock in fit.clocks):
        return merged([ask(store, question, None)])
    parts = []
    for number, fit in enumerate(fits):
        # The first stretch begins, and the last ends, where the question does.
        low = fit.from_ns if number else question.parameters["from_ns"]
        high = fits[number + 1].from_ns - 1 if number + 1 < len(fits) else None
        narrowed = question.narrowed(low, high)
        parts.append(ask(store, narrowed, fit))
    return merged(parts)


def ask(store: Store, question: Question, fit: ClockFit | None) -> pa.Table:
    parameters = {**question.parameters, "pairwise": sorted(PAIRWISE)}
    entry, leave = "raw_entry", "raw_exit"
    if fit is not None:
        clocks = [clock for clock in fit.clocks if clock.is_corrected]
        parameters |= {
            "hosts": [clock.host for clock in clocks],
            "offsets": [clock.offset_ns for clock in clocks],
            "drifts": [clock.drift for clock in clocks],
            "middle": fit.middle_ns,
        }
        entry += " - (" + AHEAD.format(time="raw_entry") + ")"
        leave += " - (" + AHEAD.format(time="raw_exit") + ")"
    sql = JOIN.format(entry=entry, exit=leave, where=question.where, absent=ABSENT)
    settings = {
        **SETTINGS,
        # Rows lie in the order of the groups: one operation at a time is held, not all of them.
        "optimize_aggregation_in_order": "1",
        "max_execution_time": JOIN_SECONDS_MAX,
    }
    return store.query(sql, parameters, settings=settings)


def merged(parts: list[pa.Table]) -> Operations:
    """All parts as one table, sorted, with operations that were cut in two put together."""
    table = pa.concat_tables(parts)
    communicators, communicator = encoded(table["communicator"])
    operations, operation = encoded(table["operation"])
    names = ("size_bytes", "first_entry_ns", "last_entry_ns", "first_exit_ns", "last_exit_ns")
    wide = {
        name: table[name].to_numpy().astype(np.int64) for name in ("sequence", "inside_ns", *names)
    }
    slim = {
        name: table[name].to_numpy().astype(np.int32)
        for name in ("ranks", "ranks_seen", "last_in", "least_inside", "last_out")
    }
    order = np.lexsort((wide["sequence"], operation, communicator))
    columns = {name: column[order] for name, column in (wide | slim).items()}
    communicator, operation = communicator[order], operation[order]
    _, group = distinct(communicator, operation, columns["sequence"])
    starts = starts_of(group)

    def best(column: str, value: np.ndarray) -> np.ndarray:
        """The rank beside the largest value of each operation's parts."""
        chosen = np.lexsort((-value, group))[starts]
        found: np.ndarray = columns[column][chosen]
        return found

    size = reduced(np.maximum, columns["size_bytes"], starts)
    ranks = reduced(np.maximum, columns["ranks"], starts)
    return Operations(
        communicators=communicators,
        operations=operations,
        communicator=communicator[starts],
        operation=operation[starts],
        sequence=columns["sequence"][starts],
        size_bytes=size,
        ranks=ranks,
        ranks_seen=reduced(np.add, columns["ranks_seen"], starts),
        first_entry_ns=reduced(np.minimum, columns["first_entry_ns"], starts),
        last_entry_ns=reduced(np.maximum, columns["last_entry_ns"], starts),
        first_exit_ns=reduced(np.minimum, columns["first_exit_ns"], starts),
        last_exit_ns=reduced(np.maximum, columns["last_exit_ns"], starts),
        last_in=best("last_in", columns["last_entry_ns"]),
        least_inside=best("least_inside", -columns["inside_ns"]),
        last_out=best("last_out", columns["last_exit_ns"]),
        bus_bytes=all_bus_bytes(operations, operation[starts], size, ranks),
    )
