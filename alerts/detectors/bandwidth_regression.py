"""Collectives that reach less bandwidth than they used to, or than the fabric was shown to give.

*Phenomenon.* Nothing breaks and nothing changes within the window: a communicator is simply slower
than last hour, or than nccl-tests on the same fabric. A firmware update, a lost lane, a new
neighbour, a worse placement.

*Signal.* Bus bandwidth of a kind of operation (its bytes over the transfer: last exit minus last
entry, so that waiting for ranks does not count), against its own long past and against nccl-tests'
results for as many ranks and bytes. Nearly all operations of the window must be below, by 5 % of
the past or by 30 % of a test, and there must be enough of them.

*Assumptions.* The past was healthy. A job shares its GPUs and links with its own computing and
other communicators, a test does not: so a test is only held against it from a distance.

*Misses.* Kinds without a past or a test. The culprit: this is context for other findings, and is
never a verdict by itself. A slow stretch within the window, and one that is far slower than the
past, is what `slow_link` finds.

*Reference.* SuperBench (Microsoft, ATC 2024) calls a bandwidth 5 % below its baseline defective.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.edges import crosses_network
from alerts.signals.transfer import Kinds, kind_of, own_past, shown_size, sorted_kinds
from alerts.window.model import JobWindow, Kind, Window
from collector.contract.cause_facts import TIMES, Sought
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence

LOOKS_FOR = Sought("collectives that became slower", (TIMES,))

PAST_SHARE = 0.95
"""Of the past's bandwidth: SuperBench's 5 %."""
TEST_SHARE = 0.7
"""Of a test's. A guess: how much of it a job reaches that computes meanwhile differs by job."""
OPERATIONS_MIN = 20
"""Before a kind is judged: medians of fewer move by some percent by chance."""
BEST = 80.0
"""Percentile of bandwidth that must be below: nearly all operations are."""
EVIDENCE_MAX = 8
"""Kinds that are named, the worst first."""
CERTAIN = 0.5
"""A loss of so much is as clear as it gets."""
GIGA = 1e9


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that reaches less than it should. Bytes a second."""

    kind: Kind
    bandwidth: float
    best: float
    expected: float
    against: str
    """What it is compared with, for people."""
    operations: int
    from_ns: int
    to_ns: int

    @property
    def loss(self) -> float:
        return 1.0 - self.bandwidth / self.expected


def detect(window: Window) -> list[Finding]:
    findings = []
    for job in window.looked:
        found = regressions(job)
        if found:
            findings.append(to_finding(window, job, found))
    return findings


def regressions(job: JobWindow) -> list[Regression]:
    operations = job.operations
    past = own_past(job.past)
    if not past and not job.baselines:
        return []
    kinds = sorted_kinds(operations)
    found = []
    for number in range(len(kinds.start) - 1):
        kind = kind_of(operations, kinds, number)
        if kind[2] == ABSENT or not crosses_network(job, kind[0]):
            continue
        expected = []
        if kind in past:
            expected.append(("the hour before", past[kind].transfer_ns, PAST_SHARE))
        tested = job.baselines.get(kind, math.nan)
        bus_bytes = float(operations.bus_bytes[kinds.row[kinds.start[number]]])
        if tested > 0:
            expected.append(("nccl-tests", bus_bytes / tested * NS, TEST_SHARE))
        for against, transfer_ns, share in expected:
            one = regression_of(job, kinds, number, (against, transfer_ns))
            if one is not None and one.best < share * one.expected:
                found.append(one)
    return sorted(found, key=lambda one: (-one.loss, one.kind, one.against))


def regression_of(
    job: JobWindow, kinds: Kinds, number: int, usual: tuple[str, float]
) -> Regression | None:
    """What a kind reaches, beside what a transfer of so many nanoseconds would be."""
    operations = job.operations
    rows = kinds.row[kinds.of(number)]
    against, transfer_ns = usual
    bandwidth = operations.bus_bandwidth[rows]
    if len(rows) < OPERATIONS_MIN or not transfer_ns > 0:
        return None
    expected = float(operations.bus_bytes[rows[0]]) / transfer_ns * NS
    if not 0 < expected < math.inf:
        return None
    return Regression(
        kind=kind_of(operations, kinds, number),
        bandwidth=float(np.median(bandwidth)),
        best=float(np.percentile(bandwidth, BEST)),
        expected=expected,
        against=against,
        operations=len(rows),
        from_ns=int(operations.last_entry_ns[rows].min()),
        to_ns=int(operations.last_exit_ns[rows].max()),
    )


def to_finding(window: Window, job: JobWindow, found: list[Regression]) -> Finding:
    last_ns = max(one.to_ns for one in found)
    return Finding(
        detector="bandwidth_regression",
        cause=Cause.SLOW_LINK,
        culprit=Culprit(),
        strength=min(1.0, found[0].loss / CERTAIN),
        since_ns=min(one.from_ns for one in found),
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        job=job.job,
        communicators=tuple(dict.fromkeys(one.kind[0] for one in found)),
        evidence=tuple(to_evidence(job, one) for one in found[:EVIDENCE_MAX]),
        is_context=True,
    )


def to_evidence(job: JobWindow, one: Regression) -> Evidence:
    communicator, operation, size_bytes = one.kind
    return Evidence(
        metric="bus_bandwidth",
        text=(
            f"{operation} of {shown_size(size_bytes)} reaches {one.bandwidth / GIGA:.1f} GB/s on "
            f"each link; {one.against} shows {one.expected / GIGA:.1f} GB/s."
        ),
        value=one.bandwidth,
        baseline=one.expected,
        unit="bytes per second",
        from_ns=one.from_ns,
        to_ns=one.to_ns,
        labels={
            "job": job.job,
            "communicator": communicator,
            "operation": operation,
            "size_bytes": str(size_bytes),
        },
        samples=one.operations,
    )
