"""Ranks that come late because they are slow themselves, and all others wait for them.

*Phenomenon.* A collective begins when its last rank has come. One rank that computes, loads or
sleeps longer than the others holds up all of them, and the network looks slow to a tool that only
measures how long collectives take.

*Signal.* The time that a rank spends outside of collectives, from its exit of anything to its own
next entry, summed over a step and held against the ranks that it meets: it grows for the culprit
alone, while those that left late because of it enter the next collective late as well
(`alerts.signals.gaps`). A rank is late where that excess is beyond the step's usual noise and a
share of the step; a culprit is late in most steps of a stretch, so many that chance does not
explain it. Ranks of one host that are late alike accuse the host. In a pipeline whose traces show
kernels, what a rank computes is its own, inside of messages or not, less what all stages of its
copy take longer by (`alerts.signals.computing`); three steps that are clearly late are enough.

*Assumptions.* Ranks that share a collective do the same work; fewer than half of them are slow.
Records are there for all operations: where some were lost no rank is accused.

*Misses.* A rank that is slow while all others hide it behind overlapped communication. A slowness
of a few percent that has lasted for the whole window is unequal work, which `imbalance` reports; so
is a rank that is late by what all-to-alls gave it to work on (`alerts.signals.held`).
Half of a group that is slow alike. Windows that hold every nth operation only; of a job with more
records than a window holds what lies between the slices that were read, and everything if a slice
is shorter than some steps.

*Reference.* The own time of a worker against its group's median, and replay with it: What-if
analysis (OSDI'25). Least time inside and last to enter: the analyzer of Meta's collective traces.
Shares of a tenth and more that count as straggling: MegaScale (NSDI'24), FALCON (ATC'25).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.gaps import OwnTime, own_time
from alerts.signals.held import explains
from alerts.signals.late import (
    CLEAR_STEPS_MIN,
    FALSE_LIVE_MAX,
    FALSE_MAX,
    LateStretch,
    find_clear,
    find_stretch,
)
from alerts.signals.replay import cost_of, labels_of, seen_last, waited_for, waits_in
from alerts.signals.step_times import as_measured
from alerts.signals.what_if import cost_by_play, what_if
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.messages import is_pairwise
from alerts.window.model import JobWindow, Window
from alerts.window.statistics import median_known
from collector.contract.figures import duration
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason, RuledOut

NS = 1e9

SHARE_MIN = 0.03
"""Of a step, by which a rank must be late: a thermal throttle of one GPU costs 5 to 30 %, an evenly
loaded job differs by less than 1 % between ranks."""
LOST_SHARE_MIN = 0.01
"""Of the job's time that all who are late must have cost it: less is what steps differ by."""
SHARE_LASTING = 0.10
"""The same for a rank that has been late through the whole window: less is unequal work.
FALCON and MegaScale call a tenth straggling."""
NOISE_FACTOR = 2.0
"""An excess must be so many times what one in ten steps of the others has by chance."""
NOISE_QUANTILE = 0.9
CLEAR_FACTOR = 3.0
"""An excess of kernels that compute is clear if it is so many times what is late: of noise that
falls off by a tenth for each 90 % point, a millionth is that far out."""
PART_STEPS_MIN = 8
"""Late steps that are needed where some ranks were not read: what ranks have by chance is less well
known, and what the slowest of them did may be explained by one that was not read."""
HEALTHY_STEPS_MIN = 4
"""So many steps before a stretch show that it has a beginning."""
PAST_SHARE = 0.5
"""Of the excess, by which a rank must have become slower than it was before, or ranks must come
further apart than in the past of one of their groups."""
HOSTS_EXACT = 32
"""With so few hosts a culprit's own steps would be a part of the noise and are left out of it."""
ALIKE = 0.4
"""A host is late as a whole where its least late quarter is late by this share of its median."""
OUTLIES = 2.5
"""A rank that is late by so many times its late host's median has trouble of its own."""
MATES_MIN = 3
SHARED_QUANTILE = 0.25
"""What a quarter of a host's other ranks are not late by, of so many at least, is not shared."""
LIVE_NS_MIN = 3_000_000_000
"""Shorter stretches are no reason to wake the on-call person, however certain."""
BRIEF_NS = 1_000_000_000
"""Shorter stretches are hiccups: a machine's trouble of a moment makes steps late in a row, which
chance of independent steps does not expect."""
BRIEF_SHARE = 0.5
"""Of the steps of a capture, which a brief stretch must fill to be more than a hiccup: captures of
a few steps hold nothing longer."""
DATA_SHARE = 0.5
"""Of the excess that the training loop's own marks must show as waiting for data."""
TRANSFER_SAME = 1.5
"""Transfer that has grown by less is not what makes the job slow."""
VICTIMS_MAX = 16
"""Ranks that only look late: more names do not help."""


class Suspected(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are late together, by their places in the table, and when."""

    rows: Ints
    host: str
    """The host, if it is late as a whole; else empty."""
    excess_ns: Floats
    """Of a typical one of them, for each step."""
    threshold_ns: Floats
    stretch: LateStretch


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """What is beyond chance."""

    threshold_ns: Floats
    """For each step, the excess that is late."""
    chance: float
    false_max: float


def detect(window: Window) -> list[Finding]:
    return [finding for job in window.looked for finding in detect_job(window, job)]


def detect_job(window: Window, job: JobWindow) -> list[Finding]:
    own = own_time(job)
    if own is None or np.isnan(own.excess_ns).all():
        return []
    suspects = [one for one in suspects_of(window, job, own) if is_fault(window, job, own, one)]
    found = [
        (one, cost if cost is not None else cost_of(job, own, rows_of(own, one), one.stretch))
        for one in suspects
        if is_felt(own, one, cost := lost_by_play(job, own, one), suspects)
        and is_waited_for(job, own, one, suspects)
    ]
    if not found:
        return []
    accused = np.concatenate([one.rows for one, _ in found])
    return [to_finding(window, job, own, one, accused, cost) for one, cost in found]


# Late ranks and hosts ----------------------------------------------------------------------------


def suspects_of(window: Window, job: JobWindow, own: OwnTime) -> list[Suspected]:
    """Hosts that are late as a whole, and ranks that are late on their own."""
    members: dict[str, list[int]] = {}
    for row, rank in enumerate(own.ranks.tolist()):
        # Ranks of unknown hosts are each alone.
        members.setdefault(job.culprit(rank).host or f"\0{row}", []).append(row)
    found: list[Suspected] = []
    overall = noise_of(window, own) if len(members) > HOSTS_EXACT else None
    for name, places in sorted(members.items()):
        rows = np.array(places, dtype=np.int64)
        if may_be_late(own, rows):
            noise = overall if overall is not None else noise_of(window, own, rows)
            found += suspects_of_host(own, rows, name, noise)
    return found


def suspects_of_host(own: OwnTime, rows: Ints, name: str, noise: Noise) -> list[Suspected]:
    """The host, if its ranks are late alike or several of them are; else the one that is.

    Of a host that is late a rank that is late by far more has trouble of its own.
    """
    whole: Suspected | None = None
    if len(rows) > 1:
        excess = quantile_known(own.excess_ns[rows], 0.5)
        whole = suspect(own, rows, name, excess, noise)
        if whole is not None and not is_alike(quantile_known(own.excess_ns[rows], 0.25), whole):
            whole = None
    single = [
        one
        for row in rows.tolist()
        if (one := suspect(own, np.array([row]), "", beyond_host(own, row, rows), noise))
        is not None
    ]
    if whole is not None:
        return [whole, *(one for one in single if outlies(own, one, whole))]
    if len(single) > 1:
        several = np.concatenate([one.rows for one in single])
        together = quantile_known(own.excess_ns[several], 0.5)
        joint = suspect(own, several, name, together, noise)
        if joint is not None:
            return [joint]
    return single


def beyond_host(own: OwnTime, row: int, rows: Ints) -> Floats:
    """How late a rank is beyond what nearly all ranks of its host are.

    What they share (a long sequence, a pause of the host) is the host's, and with a hiccup of its
    own in between it would look like a stretch of the rank's.
    """
    others, excess = rows[rows != row], np.array(own.excess_ns[row])
    if len(others) >= MATES_MIN:
        shared = np.nan_to_num(quantile_known(own.excess_ns[others], SHARED_QUANTILE))
        excess -= np.maximum(shared, 0.0)
    return excess


def may_be_late(own: OwnTime, rows: Ints) -> bool:
    """Whether a closer look is worth it: enough steps are beyond the least share."""
    late = own.excess_ns[rows] > SHARE_MIN * own.length_ns
    least = CLEAR_STEPS_MIN if own.is_computing else LateStretch.STEPS_MIN
    return bool((late.sum(axis=1) >= least).any())


def outlies(own: OwnTime, one: Suspected, host: Suspected) -> bool:
    steps = host.stretch.steps
    typical = median_known(host.excess_ns[steps])
    return median_known(own.excess_ns[one.rows[0], steps]) > OUTLIES * typical


def is_alike(low: Floats, one: Suspected) -> bool:
    inside = one.stretch.steps
    return median_known(low[inside]) >= ALIKE * median_known(one.excess_ns[inside])


def suspect(own: OwnTime, rows: Ints, host: str, excess: Floats, noise: Noise) -> Suspected | None:
    """The stretch in which these are late; None if there is none."""
    late, known = excess > noise.threshold_ns, ~np.isnan(excess)
    stretch = find_stretch(late, known, noise.chance, len(own.ranks), excess, noise.false_max)
    if stretch is None and own.is_computing:
        clear = excess > CLEAR_FACTOR * noise.threshold_ns
        stretch = find_clear(late, clear, known, len(own.ranks))
    if stretch is None:
        return None
    return Suspected(
        rows=rows, host=host, excess_ns=excess, threshold_ns=noise.threshold_ns, stretch=stretch
    )


def noise_of(window: Window, own: OwnTime, neighbours: Ints | None = None) -> Noise:
    """What ranks have by chance: all of them, or without those of one host."""
    others = np.ones(len(own.ranks), dtype=bool)
    if neighbours is not None and len(neighbours) < len(own.ranks):
        others[neighbours] = False
    excess = own.excess_ns[others]
    known = excess[~np.isnan(excess)]
    usual = max(0.0, float(np.quantile(known, NOISE_QUANTILE))) if len(known) else 0.0
    threshold = np.maximum(SHARE_MIN * own.length_ns, NOISE_FACTOR * usual)
    # One more than were seen: a small sample proves little. Ranks of a host work on the same
    # sequences and share what slows it down: together they are one sample.
    alike = 1 if neighbours is None else max(1, len(neighbours))
    chance = (float((excess > threshold).sum()) + alike) / (len(known) + alike)
    if window.is_live:
        # Where ranks take turns to be the last, those that are not it now are early: in a short
        # stretch they seem never to be late, and of a day's windows some are like that. So it must
        # be rare among all of them.
        late, count = own.excess_ns > threshold, ~np.isnan(own.excess_ns)
        chance = max(chance, (float(late.sum()) + 1) / (float(count.sum()) + 1))
    false_max = FALSE_LIVE_MAX if window.is_live else FALSE_MAX
    return Noise(threshold_ns=threshold, chance=chance, false_max=false_max)


def quantile_known(values: Floats, share: float) -> Floats:
    """The lower quantile of each column without its NaNs; NaN for a column of nothing else."""
    ordered = np.sort(values, axis=0)
    count = (~np.isnan(values)).sum(axis=0)
    place = (np.maximum(count - 1, 0) * share).astype(np.int64)
    found: Floats = np.take_along_axis(ordered, place[None], axis=0)[0]
    return found


def is_fault(window: Window, job: JobWindow, own: OwnTime, one: Suspected) -> bool:
    """Whether it is more than unequal work, and long enough to matter."""
    stretch = one.stretch
    length = int(own.end_ns[stretch.last] - own.start_ns[stretch.first])
    if (window.is_live and length < LIVE_NS_MIN) or (length < BRIEF_NS and not fills(one)):
        return False
    if is_in_part(job) and not own.is_computing and stretch.late < PART_STEPS_MIN:
        return False
    if held_more(own, one) is not None:
        return False
    if began_inside(own, one):
        return True
    if own.is_by_past[one.rows].any():
        return False  # against its own past a rank is late only if it was seen to be well
    return began_before(job, own, one) or late_share(own, one) >= SHARE_LASTING


def held_more(own: OwnTime, one: Suspected) -> float | None:
    """Of a rank that is late by what all-to-alls gave it to work on: how many times its peers'."""
    places = np.arange(len(one.excess_ns))
    steps = one.stretch.steps
    is_late = one.excess_ns > one.threshold_ns
    is_outside = (places < steps.start) | (places >= steps.stop)
    calm = np.flatnonzero(is_outside & ~is_late & ~np.isnan(one.excess_ns))
    late = np.flatnonzero(~is_outside & is_late)
    return explains(own, one.rows, late, calm, one.excess_ns)


def fills(one: Suspected) -> bool:
    """Whether a stretch is most of what is known of these ranks."""
    known = int((~np.isnan(one.excess_ns)).sum())
    return one.stretch.known >= BRIEF_SHARE * known


def is_in_part(job: JobWindow) -> bool:
    """Whether ranks are known to exist that were not read."""
    return job.ranks_read is not None and job.ranks_read < job.size


def is_felt(
    own: OwnTime, one: Suspected, played: Cost | None, suspects: Sequence[Suspected]
) -> bool:
    """Whether the job loses as much by it as a rank must be late by; ``played``: what it costs.

    Where peers meet in a collective of all ranks, it does. A pipeline hides most of what its stages
    differ by, and of two copies one is always the later one. Of two slow ranks each hides the
    other's cost: then it counts what one would still cost if the others were well.
    """
    if (own.pipeline[one.rows] < 0).any():
        return True
    if played is None:
        # Ends of messages are not known: what is not hidden for sure is large.
        return late_share(own, one) >= SHARE_LASTING
    if played.lost_share >= SHARE_MIN:
        return True
    others = np.zeros(len(own.ranks), dtype=bool)
    for each in suspects:
        if each is not one:
            others |= rows_of(own, each)
    if not others.any():
        return False
    every = what_if(own, as_peers(own, others | rows_of(own, one)), one.stretch.steps)
    rest = what_if(own, as_peers(own, others), one.stretch.steps)
    if every is None or rest is None:
        return False
    return every.saved_share - rest.saved_share >= SHARE_MIN


def is_waited_for(
    job: JobWindow, own: OwnTime, one: Suspected, suspects: Sequence[Suspected]
) -> bool:
    """Whether peers would have gone on earlier without all who are late.

    Ranks with much to do take turns to be the last. Of those the one that is late in most steps
    looks slow, and where others come hardly earlier than it the job loses nothing by it. Ranks that
    send each other messages wait in those, and then come late to a collective together: of
    pipelines see `is_felt`.
    """
    if is_pairwise(own.rows.records).any():
        return True
    late = np.logical_or.reduce([rows_of(own, each) for each in suspects])
    if not waits_in(own, late, one.stretch).has_both.any():
        return True  # no collective shows both: it is not known
    return cost_of(job, own, late, one.stretch).lost_share >= LOST_SHARE_MIN


def as_peers(own: OwnTime, ranks: Flags) -> Floats:
    """What times of these ranks are multiplied with to be their peers', [ranks, steps]."""
    factor = np.ones(own.outside_ns.shape)
    factor[ranks] = np.minimum(1.0, own.peers_ns / np.maximum(own.outside_ns, 1.0))[ranks]
    return factor


def began_inside(own: OwnTime, one: Suspected) -> bool:
    """Whether it was seen to be well before, and has become slower itself.

    Enough known steps that were not late; and since then it takes longer by half of the excess at
    least. A rank that others have overtaken is not at fault.
    """
    first = one.stretch.first
    calm = np.flatnonzero(one.excess_ns[:first] <= one.threshold_ns[:first])
    if len(calm) < HEALTHY_STEPS_MIN:
        return False
    outside = own.outside_ns[one.rows]
    grown = median_known(outside[:, one.stretch.steps]) - median_known(outside[:, calm])
    return grown >= PAST_SHARE * median_known(one.excess_ns[one.stretch.steps])


def began_before(job: JobWindow, own: OwnTime, one: Suspected) -> bool:
    """Whether ranks come further apart than in the long past, by half of the excess at least."""
    typical = median_known(one.excess_ns[one.stretch.steps])
    operations = job.operations
    members = {int(own.ranks[row]) for row in one.rows}
    for (name, kind, size), past in sorted(job.past.items()):
        known = job.communicators.get(name)
        if known is None or members.isdisjoint(known.job_rank.values()):
            continue
        if name not in operations.communicators or kind not in operations.operations:
            continue
        chosen = operations.communicator == operations.communicators.index(name)
        chosen &= operations.operation == operations.operations.index(kind)
        chosen &= operations.size_bytes == size
        skew = operations.skew_ns[chosen]
        if len(skew) and float(np.median(skew)) - past.skew_ns >= PAST_SHARE * typical:
            return True
    return False


def late_share(own: OwnTime, one: Suspected) -> float:
    steps = one.stretch.steps
    shares = one.excess_ns[steps] / np.maximum(own.length_ns[steps], 1)
    return median_known(shares)


# The finding -------------------------------------------------------------------------------------


def to_finding(
    window: Window, job: JobWindow, own: OwnTime, one: Suspected, accused: Ints, cost: Cost
) -> Finding:
    stretch = one.stretch
    since, last = int(own.start_ns[stretch.first]), int(own.end_ns[stretch.last])
    culprit = culprit_of(job, own, one)
    lasts = seen_last(job, own, rows_of(own, one), stretch)
    data = data_wait(window, job, own, one)
    clarity = median_known(one.excess_ns[stretch.steps] / one.threshold_ns[stretch.steps])
    strength = stretch.consistency * (1 - 0.5 / max(clarity, 1.0)) * (1 - 0.5 ** (stretch.late / 2))
    return Finding(
        detector="straggler",
        cause=Cause.STRAGGLER,
        culprit=culprit,
        strength=round(min(1.0, strength), 3),
        since_ns=since,
        until_ns=window.until(last),
        last_ns=last,
        reason=Reason.DATA_LOADING if data is not None else Reason.UNKNOWN,
        job=job.job,
        communicators=lasts.communicators,
        victims=victims_of(job, own, lasts.last_in, accused),
        evidence=(
            *evidence_of(job, own, one, (since, last)),
            *lasts.evidence,
            *((data,) if data is not None else ()),
        ),
        ruled_out=network_ruled_out(job, since, last),
        cost=as_measured(cost, job, since, last, hidden_wait(own, one)),
    )


def lost_by_play(job: JobWindow, own: OwnTime, one: Suspected) -> Cost | None:
    """What the accused cost a pipeline, in which others wait for them stage after stage.

    None: they are in none, or it cannot be played.
    """
    accused = rows_of(own, one)
    if not (own.pipeline[accused] >= 0).any():
        return None
    return cost_by_play(job, own, as_peers(own, accused), one.stretch.steps)


def hidden_wait(own: OwnTime, one: Suspected) -> float:
    """Seconds of a step that others wait for the accused of a pipeline, in a typical step.

    Without kernels a play takes for a rank's own time what it waited for messages; 0: it need not.
    """
    accused = rows_of(own, one)
    if own.is_computing or not (own.pipeline[accused] >= 0).any():
        return 0.0
    waited = waited_for(own, accused, one.stretch)[accused][:, one.stretch.steps]
    return median_known(waited.max(axis=0)) / NS


def rows_of(own: OwnTime, one: Suspected) -> Flags:
    is_accused = np.zeros(len(own.ranks), dtype=bool)
    is_accused[one.rows] = True
    return is_accused


def culprit_of(job: JobWindow, own: OwnTime, one: Suspected) -> Culprit:
    if one.host:
        return Culprit(job=job.job, host=one.host)
    return job.culprit(int(own.ranks[one.rows[0]]))


def evidence_of(
    job: JobWindow, own: OwnTime, one: Suspected, when: tuple[int, int]
) -> tuple[Evidence, ...]:
    steps = one.stretch.steps
    outside = median_known(own.outside_ns[one.rows][:, steps]) / NS
    peers = median_known(own.peers_ns[one.rows][:, steps]) / NS
    first = job.culprit(int(own.ranks[one.rows[0]]))
    who = one.host or (first.host if first.rank is None else f"rank {first.rank}")
    what = "on work of its own" if own.is_computing else "outside of collectives"
    others = "usually" if own.is_by_past[one.rows].any() else "the ranks it works with"
    text = (
        f"{who} spends {duration(outside)} of a step {what}, {others} "
        f"{duration(peers)}; it was late in {one.stretch.late} of {one.stretch.known} steps"
    )
    return (
        Evidence(
            metric="rank_gap", text=text, value=outside, unit="seconds", baseline=peers,
            from_ns=when[0], to_ns=when[1], samples=one.stretch.known,
            labels=labels_of(job, own.ranks[one.rows]),
        ),
    )  # fmt: skip


def victims_of(
    job: JobWindow, own: OwnTime, last_in: Sequence[int], accused: Ints
) -> tuple[Culprit, ...]:
    """Ranks that were often the last to enter although they were not slow themselves."""
    guilty = {int(own.ranks[row]) for row in accused}
    return tuple(job.culprit(rank) for rank in last_in if rank not in guilty)[:VICTIMS_MAX]


def data_wait(window: Window, job: JobWindow, own: OwnTime, one: Suspected) -> Evidence | None:
    """That the training loop's own marks show waiting for data; None if they do not."""
    hosts, name = window.hosts, "step_phase_seconds_total:data"
    row = hosts.row_of.get(one.host or job.culprit(int(own.ranks[one.rows[0]])).host)
    if row is None:
        return None
    since, last = int(own.start_ns[one.stretch.first]), int(own.end_ns[one.stretch.last])
    edges = hosts.grid.edges_ns
    values = hosts.values(name)[row]
    inside: Flags = (edges[1:] > since) & (edges[:-1] < last)
    now, usual = mean_known(values[inside]), mean_known(values[edges[1:] <= since])
    if now is None or usual is None:
        return None
    if now - usual < DATA_SHARE * late_share(own, one) * len(one.rows):
        return None
    return Evidence(
        metric=hosts.metric(name),
        text=f"{hosts.host[row]} waits for data for {now:.3g} s a second, {usual:.3g} before",
        value=now, unit="seconds per second", baseline=usual, from_ns=since, to_ns=last,
        labels={"host": hosts.host[row], "phase": "data"}, samples=int(inside.sum()),
    )  # fmt: skip


def mean_known(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def network_ruled_out(job: JobWindow, since: int, last: int) -> tuple[RuledOut, ...]:
    """That transfer has not grown, with both figures; nothing where it has, or is not known."""
    operations = job.operations
    if not len(operations):
        return ()
    inside = (operations.last_exit_ns > since) & (operations.last_exit_ns <= last)
    transfer = operations.transfer_ns.astype(np.float64)
    if not inside.any() or inside.all():
        return ()
    now, usual = float(np.median(transfer[inside])), float(np.median(transfer[~inside]))
    if now > TRANSFER_SAME * usual:
        return ()
    why = (
        f"once all ranks have come, a collective takes {duration(now / NS)}, "
        f"and {duration(usual / NS)} at other times"
    )
    return (RuledOut(what="network", why=why),)
