"""The join over ranks inside the store: for jobs whose records do not fit into memory.

It gives what `alerts.window.split.split` gives, row for row, from any number of records; where two
ranks entered at the same nanosecond it may name the other one. Repeats that are not merged yet
change none of it (a timed record never changes), so that the engine need not look for them: FINAL
would take five times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from alerts.window.columns import ClockFit, Operations
from alerts.window.common_clock import HELD_NS, HostClock, host_clocks
from alerts.window.split import PAIRWISE, all_bus_bytes, distinct, reduced, starts_of
from api.data.store.store import Store
from api.jobs.correlate.read import SETTINGS, Question, encoded
from collector.contract.records import ABSENT
from collector.contract.units import NS

JOIN_SECONDS_MAX = "60"
ROUNDED_NS = NS
"""More than by which a record's time differs from the end of its operation."""
FOREVER_NS = 2**62
"""The year 2116: no record is later."""
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
               {lines} {entry} AS e, {exit} AS x
        FROM collectives
        WHERE {where} AND entry IS NOT NULL AND exit IS NOT NULL
              AND operation NOT IN {{pairwise:Array(String)}} {more}
    )
    GROUP BY communicator, operation, sequence
"""
LINES = (
    ("offset", "Int64", "toInt64(0)"),
    ("drift", "Float64", "0.0"),
    ("middle", "Int64", "toInt64(0)"),
    ("held_from", "Int64", "toInt64(0)"),
    ("held_to", "Int64", "toInt64(0)"),
    ("low", "Int64", "{lowest:Int64}"),
    ("high", "Int64", "{highest:Int64}"),
    ("entry_low", "Int64", "{lowest:Int64}"),
)
"""A line of each host's clock (`alerts.window.common_clock`), and what hosts without one have."""
AHEAD = """
    offset + toInt64(round(drift * (least(greatest({time}, held_from), held_to) - offset - middle)))
"""
ON_LINE = """
    AND greatest(raw_exit, raw_entry) BETWEEN low AND high AND raw_entry >= entry_low
"""


def split_in_store(store: Store, question: Question, fits: list[ClockFit]) -> Operations:
    """One row for each operation of which any rank was timed, on the common clock.

    Records of clocks that are not known are left out; of a clock that was set back all are, since
    only the other ranks tell on which side of that a record lies.
    """
    clocks = host_clocks(fits)
    if not clocks:
        return merged([ask(store, question, "", "", {})])
    parted = {host: clock.parted() for host, clock in clocks.items()}
    most = max(len(clock.low_ns) for clock in clocks.values())
    return merged([ask_line(store, question, parted, number) for number in range(most)])


def ask_line(
    store: Store, question: Question, clocks: Mapping[str, HostClock | None], number: int
) -> pa.Table:
    """The operations by this line of each clock; those of hosts without any come with the first."""
    found = {
        host: clock
        for host, clock in clocks.items()
        if clock is not None and number < len(clock.low_ns) and clock.is_known[number]
    }
    names = list(found)
    columns = {
        "offset": [int(clock.offset_ns[number]) for clock in found.values()],
        "drift": [float(clock.drift[number]) for clock in found.values()],
        "middle": [int(clock.middle_ns[number]) for clock in found.values()],
        "held_from": [int(clock.from_ns[number]) - HELD_NS for clock in found.values()],
        "held_to": [int(clock.to_ns[number]) + HELD_NS for clock in found.values()],
        "low": [int(clock.low_ns[number]) for clock in found.values()],
        "high": [int(clock.high_ns[number]) for clock in found.values()],
        "entry_low": [int(clock.entry_low_ns[number]) for clock in found.values()],
    }
    parameters = {"hosts": names, "all_hosts": list(clocks), "lowest": 0, "highest": FOREVER_NS}
    parameters |= {f"{name}s": values for name, values in columns.items()}
    lines = " ".join(
        f"transform(toString(host), {{hosts:Array(String)}}, {{{name}s:Array({kind})}}, {usual})"
        f" AS {name},"
        for name, kind, usual in LINES
    )
    if number == 0:
        others = "OR toString(host) NOT IN {all_hosts:Array(String)}"
        more = f"{ON_LINE} AND (toString(host) IN {{hosts:Array(String)}} {others})"
        return ask(store, question, lines, more, parameters)
    more = f"{ON_LINE} AND toString(host) IN {{hosts:Array(String)}}"
    return ask(store, in_time_of(question, found, number), lines, more, parameters)


def in_time_of(question: Question, clocks: Mapping[str, HostClock], number: int) -> Question:
    """The question for the time of one line: else each of a dozen lines would read all of it."""
    asked = question.parameters
    low = min((int(clock.low_ns[number]) for clock in clocks.values()), default=asked["to_ns"])
    high = max((int(clock.high_ns[number]) for clock in clocks.values()), default=asked["from_ns"])
    # As numbers of Python: the ends of the outermost lines are those of time.
    begin, end = max(asked["from_ns"], low - ROUNDED_NS), min(asked["to_ns"], high + ROUNDED_NS)
    return question.narrowed(begin, end)


def ask(
    store: Store, question: Question, lines: str, more: str, line_parameters: Mapping[str, Any]
) -> pa.Table:
    parameters = {**question.parameters, "pairwise": sorted(PAIRWISE), **line_parameters}
    entry, leave = "raw_entry", "raw_exit"
    if lines:
        entry += " - (" + AHEAD.format(time="raw_entry") + ")"
        leave += " - (" + AHEAD.format(time="raw_exit") + ")"
    sql = JOIN.format(
        entry=entry, exit=leave, lines=lines, more=more, where=question.where, absent=ABSENT
    )
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
