"""Times in which a job stood still inside of a collective and then went on, without a culprit.

*Phenomenon.* All ranks are in a collective and it does not end for seconds, where milliseconds are
usual; then it does. A switch that reboots, a route that converges, a transport that retries: those
leave no trace in the job's own times that could accuse a rank.

*Signal.* A collective whose transfer, from its last entry to its last exit, lasts for seconds and
for many times what is usual of its kind and of the job's steps; most ranks of it were in it, or
already in the next one, for that time by their own clocks; nothing else was completed meanwhile; it
happens seldom.

*Assumptions.* All ranks' records of that collective are there: who is missing may have come late.

*Misses.* Standstills below two seconds. One that repeats many times in a window is a slow network,
which other detectors name. One that goes on until now is a hang.

*Reference.* A stall without evidence against a rank accuses none: C4's communication hang and
Mycroft's no-progress trigger (SOSP'25) both need a further observation before they name a rank.
"""

from __future__ import annotations

import numpy as np

from alerts.finding import Finding
from alerts.signals.pipelines import job_ranks
from alerts.signals.transfer import TRANSFER
from alerts.window.columns import Ints, Operations, Records
from alerts.window.model import JobWindow, Window
from alerts.window.split import distinct, medians
from collector.contract.figures import duration
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, RuledOut

STALL_NS_MIN = 2 * NS
"""Shorter ones are a slow collective."""
USUAL_FACTOR = 10
"""Times the usual transfer of its kind, and the usual step."""
OPERATIONS_MIN = 10
"""Fewer operations do not show what is usual."""
SKEW_SHARE_MAX = 0.2
"""Of the stall: where ranks came further apart, one was late."""
INSIDE_SHARE = 0.7
"""Of the stall that a rank must have been inside, by its own clock..."""
RANKS_SHARE = 0.8
"""...and the share of ranks that must: a clock that was set makes one of them look so."""
STILL_SHARE = 0.7
"""Of the stall in which nothing else of the job was completed."""
REPEATS_MAX = 3
"""More of them in a window are a habit, not an incident."""
APART_NS = NS // 10
"""Stalls of several groups closer than this are one."""


def detect(window: Window) -> list[Finding]:
    return [finding for job in window.looked for finding in detect_job(job)]


def detect_job(job: JobWindow) -> list[Finding]:
    operations = job.operations
    if len(operations) < OPERATIONS_MIN or job.is_estimate:
        return []
    usual = usual_of(operations)
    step = int(np.median([one.end_ns - one.start_ns for one in job.steps])) if job.steps else 0
    transfer = operations.transfer_ns
    long = transfer >= np.maximum(STALL_NS_MIN, USUAL_FACTOR * np.maximum(usual, step))
    long &= operations.skew_ns <= SKEW_SHARE_MAX * transfer
    long &= (operations.ranks_seen >= operations.ranks) & (operations.ranks_seen > 1)
    rows = np.flatnonzero(long)
    if not len(rows):
        return []
    rows = rows[[all_inside(job, operations, int(row)) for row in rows]]
    kept = [row for row in merged(operations, rows) if is_still(operations, row)]
    if len(kept) > REPEATS_MAX:
        return []
    return [to_finding(job, row, int(usual[row])) for row in kept]


def usual_of(operations: Operations) -> Ints:
    _, kind = distinct(operations.communicator, operations.operation, operations.size_bytes)
    return medians(operations.transfer_ns, kind)[kind]


def all_inside(job: JobWindow, operations: Operations, row: int) -> bool:
    """Whether nearly all members were in this collective, or in the next one, for the stall.

    Of a ring that stands some ranks may have all their bytes: they leave, and wait in whatever
    comes next. By each rank's own clock, so that setting a clock does not look like a stop.
    """
    records = job.records
    first, last = int(operations.last_entry_ns[row]), int(operations.last_exit_ns[row])
    if job.slices and not any(begin <= first and last <= end for begin, end in job.slices):
        # No records were read then; that nothing else was completed must do.
        return True
    met = records.timed() & (records.entry_ns < last) & (records.exit_ns > first)
    near: Records = records.select(met)
    name = operations.communicators[operations.communicator[row]]
    members = job.communicators.get(name)
    if not len(near) or members is None:
        return False
    number = job_ranks(job, near)
    overlap = np.minimum(near.exit_ns, last) - np.maximum(near.entry_ns, first)
    inside = number[overlap >= INSIDE_SHARE * (last - first)]
    waiting = np.intersect1d(inside, np.array(list(members.job_rank.values()), dtype=np.int64))
    return len(waiting) >= RANKS_SHARE * int(operations.ranks_seen[row])


def merged(operations: Operations, rows: Ints) -> list[int]:
    """Of stalls at the same time, in several groups, the longest."""
    kept: list[int] = []
    for row in sorted(rows.tolist(), key=lambda one: int(-operations.transfer_ns[one])):
        first, last = operations.last_entry_ns[row], operations.last_exit_ns[row]
        apart = [
            first > operations.last_exit_ns[other] + APART_NS
            or last < operations.last_entry_ns[other] - APART_NS
            for other in kept
        ]
        if all(apart):
            kept.append(row)
    return sorted(kept, key=lambda one: int(operations.last_entry_ns[one]))


def is_still(operations: Operations, row: int) -> bool:
    """Whether nothing else was completed for most of the time."""
    first, last = int(operations.last_entry_ns[row]), int(operations.last_exit_ns[row])
    ends = operations.last_exit_ns
    between = np.sort(ends[(ends > first) & (ends < last)])
    edges = np.concatenate([[first], between, [last]])
    return bool(np.diff(edges).max() >= STILL_SHARE * (last - first))


def to_finding(job: JobWindow, row: int, usual_ns: int) -> Finding:
    operations = job.operations
    since, last = int(operations.last_entry_ns[row]), int(operations.last_exit_ns[row])
    seconds, usual = (last - since) / NS, usual_ns / NS
    kind = operations.operations[operations.operation[row]]
    ranks = int(operations.ranks_seen[row])
    text = (
        f"when all {ranks} ranks had entered, one {kind} took another {duration(seconds)}; "
        f"{duration(usual)} is usual"
    )
    skew = duration(int(operations.skew_ns[row]) / NS)
    return Finding(
        detector="stall",
        cause=Cause.STALL,
        culprit=Culprit(job=job.job),
        strength=round(float(1 - USUAL_FACTOR * usual / max(seconds, 1e-9) / 4), 3),
        since_ns=since,
        until_ns=last,
        last_ns=last,
        job=job.job,
        communicators=(operations.communicators[operations.communicator[row]],),
        evidence=(
            Evidence(
                metric=TRANSFER, text=text, value=seconds, unit="seconds",
                baseline=usual, from_ns=since, to_ns=last, samples=ranks,
                labels=labels_of(job, row),
            ),
        ),
        ruled_out=(
            RuledOut(what="straggler", why=f"all ranks had entered within {skew}"),
        ),
        cost=Cost(
            job=job.job, lost_seconds=max(0.0, seconds - usual), step_seconds=None,
            step_seconds_without=None, lost_share=1.0,
            gpu_hours=max(0.0, seconds - usual) * job.size / 3600,
        ),
    )  # fmt: skip


def labels_of(job: JobWindow, row: int) -> dict[str, str]:
    """The one operation that is meant."""
    operations = job.operations
    labels = {
        "job": job.job,
        "communicator": operations.communicators[operations.communicator[row]],
        "operation": operations.operations[operations.operation[row]],
        "sequence": str(int(operations.sequence[row])),
    }
    size = int(operations.size_bytes[row])
    return labels if size == ABSENT else {**labels, "size_bytes": str(size)}
