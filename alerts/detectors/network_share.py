"""Jobs that spend much of their time waiting for bytes. Context for others, never a verdict.

*Phenomenon.* A healthy job may be bound by its network: too little overlap, too small a batch, too
many ranks for the message. Then every small trouble of the network costs at once.

*Signal.* The share of a step that is exposed transfer: inside of collectives, sends and receives,
after the last rank had come, not hidden behind computing; the median over the window's steps.

*Assumptions.* Steps are known, and collectives on a stream of their own are counted once.

*Misses.* Sends and receives whose other end no source names: all of them is waiting.

*Reference.* Communication takes 20 to over 50 % of an iteration in reports of large jobs. For the
25 % that this product holds itself to there is no source: it is a goal, and marked as one.
"""

from __future__ import annotations

import numpy as np

from alerts.finding import Finding
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import TIMES, Sought
from collector.contract.figures import duration
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence

LOOKS_FOR = Sought("the network's share of time", (TIMES,))

SHARE_MAX = 0.25
"""Of a step; a goal of this product, not a published limit."""
STEPS_MIN = 5
"""Fewer steps are no rhythm."""


def detect(window: Window) -> list[Finding]:
    found = [detect_job(window, job) for job in window.looked]
    return [finding for finding in found if finding is not None]


def detect_job(window: Window, job: JobWindow) -> Finding | None:
    steps = sorted(
        (step for step in job.steps if step.end_ns > step.start_ns), key=lambda one: one.start_ns
    )
    if len(steps) < STEPS_MIN:
        return None
    length = np.array([step.end_ns - step.start_ns for step in steps], dtype=np.float64)
    transfer = np.array([step.transfer_ns for step in steps], dtype=np.float64)
    share = float(np.median(np.minimum(transfer / length, 1.0)))
    if share <= SHARE_MAX:
        return None
    since, last = steps[0].start_ns, max(step.end_ns for step in steps)
    typical = float(np.median(transfer)) / NS
    text = (
        f"{share:.0%} of a step is waiting for bytes ({duration(typical)}); "
        f"{SHARE_MAX:.0%} is the goal"
    )
    return Finding(
        detector="network_share",
        cause=Cause.CONGESTION,
        culprit=Culprit(job=job.job),
        strength=round(min(1.0, share), 3),
        since_ns=since,
        until_ns=window.until(last),
        last_ns=last,
        job=job.job,
        evidence=(
            Evidence(
                metric="step_transfer_share", text=text, value=share, unit="ratio",
                baseline=SHARE_MAX, from_ns=since, to_ns=last, labels={"job": job.job},
                samples=len(steps),
            ),
        ),
        is_context=True,
    )  # fmt: skip
