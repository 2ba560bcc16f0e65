"""*Phenomenon.* A host or a rank loses a little time in each step, or much in some of them.

*Signal.* Its time outside of collectives beyond its peers' (as for `straggler`), as a mean over the
newest steps: by chance that mean falls with their number. Too small, or in too few steps, to accuse
by itself, it is reported with a strength below every verdict; the judge believes it where readings
of the very host or GPU say why, and both began together.

*Assumptions.* Peers do the same work, and what they differ by at random they differ by in each step
anew. A rank that always has a little more to do is late on average as well: nothing accuses it.

*Misses.* Ranks without peers; what has no reading that says why; hosts of a job that are all a
little slow.

*Reference.* Student's mean of many small differences; FALCON and Greyhound (2024) for slowdowns of
a few percent that only show over many iterations.
"""

from __future__ import annotations

import numpy as np

from alerts.detectors.straggler import network_ruled_out, quantile_known
from alerts.finding import Finding
from alerts.signals.gaps import OwnTime, own_time
from alerts.signals.slight import Slight, slightly_late
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import TIMES, Sought
from collector.contract.figures import duration
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence

LOOKS_FOR = Sought("ranks that lose a little in every step", (TIMES,))
STRENGTH = 0.28
"""Of lateness that is no chance and too small to accuse by: below what becomes a verdict alone."""
FOUND_MAX = 8
"""Such findings of a job: more of them are a job whose ranks differ."""


def detect(window: Window) -> list[Finding]:
    found = []
    for job in window.looked:
        own = own_time(job)
        if own is not None and not np.isnan(own.excess_ns).all():
            found += of_job(window, job, own)
    return found


def of_job(window: Window, job: JobWindow, own: OwnTime) -> list[Finding]:
    """Hosts, and ranks that are the only ones of theirs, the clearest first."""
    members: dict[str, list[int]] = {}
    for row, rank in enumerate(own.ranks.tolist()):
        if (host := job.culprit(rank).host) and not own.is_by_past[row]:
            members.setdefault(host, []).append(row)
    hosts = sorted(members.items())
    if not hosts:
        return []
    rows = [np.array(places, dtype=np.int64) for _, places in hosts]
    typical = np.stack([quantile_known(own.excess_ns[one], 0.5) for one in rows])
    every = np.concatenate(rows)
    singles = slightly_late(own, [*every[:, None]], own.excess_ns[every])
    alone = dict(zip(every.tolist(), singles, strict=True))
    found: list[tuple[float, Finding]] = []
    wholes = slightly_late(own, rows, typical)
    for (host, places), whole in zip(hosts, wholes, strict=True):
        single = [(row, one) for row in places if (one := alone[row]) is not None]
        culprit, who = Culprit(job=job.job, host=host), host
        if whole is None and len(single) == 1:
            culprit = job.culprit(int(own.ranks[single[0][0]]))
            who = f"rank {culprit.rank}"
        best = whole or max(
            (one for _, one in single), key=lambda one: one.deviations, default=None
        )
        if best is not None:
            found.append((best.deviations, to_finding(window, job, own, best, culprit, who)))
    found.sort(key=lambda each: -each[0])
    return [finding for _, finding in found[:FOUND_MAX]]


def to_finding(
    window: Window, job: JobWindow, own: OwnTime, one: Slight, culprit: Culprit, who: str
) -> Finding:
    since, last = int(own.start_ns[one.first]), int(own.end_ns[one.last])
    share = one.mean_ns / max(1.0, float(np.median(own.length_ns[one.first : one.last + 1])))
    text = (
        f"{who} is late by {duration(one.mean_ns / NS)} of a step on average ({share:.1%}), over "
        f"{one.known} steps; by chance its mean would lie within "
        f"{duration(one.mean_ns / one.deviations / NS)}"
    )
    return Finding(
        detector="slight_lateness",
        cause=Cause.STRAGGLER,
        culprit=culprit,
        strength=STRENGTH,
        since_ns=since,
        until_ns=window.until(last),
        last_ns=last,
        job=job.job,
        # A capture is short, and few come with readings of hosts: it accuses none there.
        is_context=not window.is_live,
        evidence=(
            Evidence(
                metric="rank_gap", text=text, value=one.mean_ns / NS, unit="seconds", baseline=0.0,
                from_ns=since, to_ns=last, samples=one.known, labels={"job": job.job, "who": who},
            ),
        ),
        ruled_out=network_ruled_out(job, since, last),
    )  # fmt: skip
