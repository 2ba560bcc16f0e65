"""*Phenomenon.* A host or a rank loses a little time in each step, or much in some of them.

*Signal.* Its time outside of collectives beyond its peers' (as for `straggler`), as a mean over the
newest steps: by chance that mean falls with their number. The clearest host is left out of what the
others scatter by, so that it hides no second one; steps on time are its end. Or its time outside
beyond what it was before, where its job's other hosts have not grown, its ranks enter later and
steps are longer: of copies that were never equal the slower one may have been ahead
(`alerts.signals.grown`). Too small, or in too few steps, to accuse by itself, it is reported with a
strength below every verdict; the judge believes it where readings of the very host or GPU say why,
and both began together.

*Assumptions.* Peers do the same work, and what they differ by at random they differ by in each step
anew. A rank that always has a little more to do is late on average as well: nothing accuses it.

*Misses.* Ranks without peers; what has no reading that says why; hosts of a job that are all a
little slow. What has grown since fewer than six steps, or for so long that the window has no twelve
steps from before.

*Reference.* Student's mean of many small differences; FALCON and Greyhound (2024) for slowdowns of
a few percent that only show over many iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from alerts.detectors.straggler import network_ruled_out
from alerts.finding import Finding
from alerts.signals.gaps import OwnTime, own_time
from alerts.signals.grown import grown
from alerts.signals.slight import Slight, slightly_late, typical_of
from alerts.window.columns import Ints
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
APART_MAX = 2
"""Hosts whose lateness is left out of what the others scatter by: three troubles at once."""
BEGAN_NS = 30 * NS
"""A host that was late for longer before it became slower has had two things: what began with a
reading of its machine is the later one. The judge joins what began within that time."""
APART_SHARE_MAX = 0.5
"""Of a job's hosts: where so many are late, lateness is what they differ by, and not left out."""


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
    hosts = [(host, np.array(rows, dtype=np.int64)) for host, rows in sorted(members.items())]
    if not hosts:
        return []
    late = sorted(late_hosts(own, hosts), key=lambda each: -each.best.deviations)
    return [
        to_finding(window, job, own, each.best, *named(job, own, each)) for each in late[:FOUND_MAX]
    ]


def named(job: JobWindow, own: OwnTime, late: LateHost) -> tuple[Culprit, str]:
    if late.row is None:
        return Culprit(job=job.job, host=late.host), late.host
    culprit = job.culprit(int(own.ranks[late.row]))
    return culprit, f"rank {culprit.rank}"


class LateHost(msgspec.Struct, frozen=True):
    """A host, or its only rank that is late, by its place in the table."""

    host: str
    row: int | None
    best: Slight


def late_hosts(own: OwnTime, hosts: Sequence[tuple[str, Ints]]) -> list[LateHost]:
    """Those that are late beside their peers, or have become slower than they were."""
    late, slower = beside_peers(own, hosts), named_once(hosts, lambda rows: grown(own, rows))
    found = [
        now if now is not None and (one is None or began_before(own, one, now)) else one
        for one, now in zip(late, slower, strict=True)
    ]
    return [one for one in found if one is not None]


def began_before(own: OwnTime, one: LateHost, changed: LateHost) -> bool:
    """Whether a host was late, perhaps by less, long before it became slower."""
    began_ns = [int(own.start_ns[each.best.first]) for each in (one, changed)]
    return began_ns[1] - began_ns[0] > BEGAN_NS


def beside_peers(own: OwnTime, hosts: Sequence[tuple[str, Ints]]) -> list[LateHost | None]:
    """Each host that is late; None for those that are not.

    The clearest one widens what the others scatter by until it is left out: another host with
    trouble of its own would hide behind it.
    """
    apart = np.zeros(len(own.ranks), dtype=bool)

    def late(rows: Sequence[Ints]) -> list[Slight | None]:
        return slightly_late(own, rows, typical_of(own.excess_ns, rows), apart)

    found = named_once(hosts, late)
    for _ in range(APART_MAX):
        seen = [(one.best.deviations, place) for place, one in enumerate(found) if one is not None]
        beside = [each for each in seen if not apart[hosts[each[1]][1]].any()]
        if not beside or len(seen) >= APART_SHARE_MAX * len(hosts):
            break
        apart[hosts[max(beside)[1]][1]] = True
        again = named_once(hosts, late)
        found = [before or now for before, now in zip(found, again, strict=True)]
    return found


def named_once(
    hosts: Sequence[tuple[str, Ints]],
    find: Callable[[Sequence[Ints]], Sequence[Slight | None]],
) -> list[LateHost | None]:
    """Each host that is late as a whole, or with several ranks; or its only one that is late."""
    every = np.concatenate([rows for _, rows in hosts])
    alone = dict(zip(every.tolist(), find([*every[:, None]]), strict=True))
    found: list[LateHost | None] = []
    for (host, rows), whole in zip(hosts, find([rows for _, rows in hosts]), strict=True):
        single = [(row, one) for row in rows.tolist() if (one := alone[row]) is not None]
        best = whole or max(
            (one for _, one in single), key=lambda one: one.deviations, default=None
        )
        row = single[0][0] if whole is None and len(single) == 1 else None
        found.append(LateHost(host, row, best) if best is not None else None)
    return found


def to_finding(
    window: Window, job: JobWindow, own: OwnTime, one: Slight, culprit: Culprit, who: str
) -> Finding:
    since, last = int(own.start_ns[one.first]), int(own.end_ns[one.last])
    share = one.mean_ns / max(1.0, float(np.median(own.length_ns[one.first : one.last + 1])))
    much = duration(one.mean_ns / NS)
    if one.is_change:
        what = f"spends {much} of a step more outside of collectives ({share:.1%}) than before"
        what += ", and its peers do not"
    else:
        what = f"is late by {much} of a step on average ({share:.1%})"
    text = (
        f"{who} {what}, over {one.known} steps; by chance its mean would lie within "
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
