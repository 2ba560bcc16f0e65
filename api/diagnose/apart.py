"""Hosts whose clocks are far from the others': another time zone, or a clock that was never set.

What such a host writes is joined with the others' by numbers, not by times; but where a job begins
and ends, and in which order operations follow each other, only the common clock tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.clock_steps import FAR_NS, Parts, fit_levels, levels
from alerts.window.clocks import has_several, operation_index
from alerts.window.columns import Clock, ClockFit, Flags, Ints, Records
from alerts.window.common_clock import HostClock, ahead_of, host_clocks
from api.diagnose.jobs import Job
from api.diagnose.throw_away import ThrowAwayStore
from collector.contract.units import NS

SEEN_LATE_NS = 10 * NS
"""Ends that a watchdog saw, or that a line was written after, are late by up to seconds: only
clocks that are further apart than this are told from them."""

SPANS_SQL = """
    SELECT communicator, rank, host,
           toUnixTimestamp64Nano(min(least(time, ifNull(entry, time), ifNull(enqueue, time))))
               AS first_ns,
           toUnixTimestamp64Nano(max(time)) AS last_ns
    FROM collectives WHERE communicator IN {communicators:Array(String)}
    GROUP BY communicator, rank, host
"""


def put_together(records: Records, seen: Flags) -> tuple[Records, dict[str, int]]:
    """The records with ends on one clock to within seconds, and hosts that were far ahead.

    ``seen``: rows with an end, which may have been seen late.
    """
    rows = np.flatnonzero(seen)
    operation = operation_index(records)[rows] if len(records) else np.zeros(0, dtype=np.int64)
    if len(rows):
        rows = rows[has_several(operation, records.host[rows])]
    if not len(rows):
        return records, {}
    count = len(records.hosts)
    parts = Parts(
        clock=records.host.astype(np.int64),
        host=np.arange(count, dtype=np.int64),
        ahead_ns=np.zeros(count, dtype=np.int64),
    )
    leave = (records.exit_ns - int(np.median(records.exit_ns[rows]))).astype(np.float64)
    evidence, fit = fit_levels(parts, rows, operation_index(records), leave)
    ahead = levels(parts, evidence, fit)
    ahead[np.abs(ahead) < SEEN_LATE_NS] = 0
    if not ahead.any():
        return records, {}
    moved = np.where(seen, records.exit_ns - ahead[records.host], records.exit_ns)
    found = {name: int(ahead[code]) for code, name in enumerate(records.hosts) if ahead[code]}
    return msgspec.structs.replace(records, exit_ns=moved), found


def told(fits: Sequence[ClockFit], ahead_ns: Mapping[str, int]) -> list[ClockFit]:
    """The fits, with clocks that `put_together` has moved already."""

    def one(clock: Clock) -> Clock:
        if clock.host not in ahead_ns:
            return clock
        return msgspec.structs.replace(
            clock,
            offset_ns=ahead_ns[clock.host],
            residual_ns=max(clock.residual_ns, SEEN_LATE_NS),
            from_ns=None,
            to_ns=None,
            is_corrected=True,
        )

    if not ahead_ns:
        return list(fits)
    return [
        msgspec.structs.replace(fit, clocks=[one(clock) for clock in fit.clocks]) for fit in fits
    ]


def common_span(store: ThrowAwayStore, job: Job, fits: Sequence[ClockFit]) -> tuple[int, int]:
    """From when to when a job was seen, by the common clock."""
    clocks = host_clocks(fits)
    if not any(is_far(clock) for clock in clocks.values()):
        return job.first_ns, job.last_ns
    job_ranks = job.job_ranks
    names = sorted({name for name, _ in job_ranks})
    spans = []
    for row in store.rows("collectives", SPANS_SQL, {"communicators": names}):
        place = job.places.get(job_ranks.get((row["communicator"], row["rank"]), -1))
        host = row["host"] or (place.host if place is not None else "") or ""
        clock = clocks.get(host)
        if clock is None or clock.is_known.any():
            times: Ints = np.array([row["first_ns"], row["last_ns"]], dtype=np.int64)
            moved = times - ahead_of(clocks, host, times)
            spans.append((int(moved.min()), int(moved.max())))
    if not spans:
        return job.first_ns, job.last_ns
    return min(first for first, _ in spans), max(last for _, last in spans)


def is_far(clock: HostClock) -> bool:
    return bool((np.abs(clock.offset_ns) > FAR_NS).any() or not clock.is_known.all())
