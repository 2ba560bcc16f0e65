"""Unequal work: the same rank always a little later, or another one at each step. Context only.

*Phenomenon.* Long sequences, popular experts, an uneven cut into stages: ranks that share a
collective do not do the same work. All wait for the rank that has the most, and nothing is broken.

*Signal.* Either ranks that are late by less than a tenth of a step through the whole window
(`straggler` finds what began inside of the window, or is larger); or a typical step in which the
slowest rank is late by a twentieth, and hardly ever the same one.

*Assumptions.* As for `straggler`.

*Misses.* Stages of a pipeline that are cut unevenly: they share no collective.

*Reference.* Sequence-length imbalance and uneven stages as the commonest reasons of slow steps:
What-if analysis (OSDI'25).
"""

from __future__ import annotations

import numpy as np

from alerts.detectors.straggler import culprit_of, evidence_of, is_fault, late_share, suspects_of
from alerts.finding import Finding
from alerts.signals.gaps import OwnTime, own_time
from alerts.window.model import JobWindow, Window
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

RANDOM_SHARE_MIN = 0.05
"""Of a step by which its slowest rank is typically late: ByteDance calls a job that loses a tenth
straggling, half of it is worth a word."""
SAME_MAX = 0.5
"""Of steps in which one rank may be the slowest, to call it random."""
STEPS_MIN = 10


def detect(window: Window) -> list[Finding]:
    found: list[Finding] = []
    for job in window.jobs:
        own = own_time(job)
        if own is None or np.isnan(own.excess_ns).all():
            continue
        lasting = lasting_of(window, job, own)
        varying = None if lasting else varying_of(window, job, own)
        found += lasting if varying is None else [varying]
    return found


def lasting_of(window: Window, job: JobWindow, own: OwnTime) -> list[Finding]:
    """Ranks and hosts that always have somewhat more to do."""
    found = []
    for one in suspects_of(job, own):
        if is_fault(window, job, own, one):
            continue
        since = int(own.start_ns[one.stretch.first])
        last = int(own.end_ns[one.stretch.last])
        found.append(
            Finding(
                detector="imbalance",
                cause=Cause.STRAGGLER,
                culprit=culprit_of(job, own, one),
                strength=round(min(1.0, one.stretch.consistency * (0.5 + late_share(own, one))), 3),
                since_ns=since,
                until_ns=window.until(last),
                last_ns=last,
                reason=Reason.IMBALANCE,
                job=job.job,
                evidence=evidence_of(job, own, one, (since, last)),
                is_context=True,
            )
        )
    return found


def varying_of(window: Window, job: JobWindow, own: OwnTime) -> Finding | None:
    known = ~np.isnan(own.excess_ns).all(axis=0)
    if int(known.sum()) < STEPS_MIN:
        return None
    excess = np.where(np.isnan(own.excess_ns), -np.inf, own.excess_ns)[:, known]
    slowest = excess.argmax(axis=0)
    share = float(np.median(excess.max(axis=0) / np.maximum(own.length_ns[known], 1)))
    same = float(np.bincount(slowest).max()) / len(slowest)
    if share < RANDOM_SHARE_MIN or same > SAME_MAX:
        return None
    since, last = int(own.start_ns[known][0]), int(own.end_ns[known][-1])
    text = (
        f"in a typical step the slowest rank is late by {share:.1%} of it, and no rank is the "
        f"slowest in more than {same:.0%} of steps"
    )
    return Finding(
        detector="imbalance",
        cause=Cause.STRAGGLER,
        culprit=Culprit(job=job.job),
        strength=round(min(1.0, 0.5 + share), 3),
        since_ns=since,
        until_ns=window.until(last),
        last_ns=last,
        reason=Reason.IMBALANCE,
        job=job.job,
        evidence=(
            Evidence(
                metric="slowest_rank_late", text=text, value=share, unit="ratio",
                from_ns=since, to_ns=last, labels={"job": job.job}, samples=len(slowest),
            ),
        ),
        is_context=True,
    )  # fmt: skip
