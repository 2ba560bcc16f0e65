"""Unequal work: the same rank or stage always later, or another rank at each step.

An uneven stage, copies of a pipeline that compute unequally long, and ranks that work on more
tokens than others are reported of files if they cost a twentieth of a step; in a running job they
are context only: no on-call person can mend them. The others are context always: from times alone a
rank with more work and one on a noisy host look the same.

*Phenomenon.* Long sequences, popular experts, an uneven cut into stages: ranks that share a
collective do not do the same work. All wait for the rank that has the most, and nothing is broken.

*Signal.* Ranks that are late by less than a tenth of a step through the whole window (`straggler`
finds what began inside of the window, or is larger); or a typical step in which the slowest rank is
late by a twentieth, and hardly ever the same one; or a stage of a pipeline whose ranks all take
longer than those of other stages, step by step, by so much that steps played again with a usual
stage in its place (`alerts.signals.what_if`) are shorter by a twentieth; or copies of a pipeline
whose kernels take longer in all stages alike, by as much in steps played again with equal work; or
ranks that are late by no more than what all-to-alls of unequal sizes gave them to work on explains
(`alerts.signals.held`).

*Assumptions.* As for `straggler`. Stages are meant to do equal work.

*Misses.* Stages whose messages overlap with their work, where no trace shows kernels: what they do
meanwhile is not seen. Micro-batches of unequal length within one copy, while copies are equal. What
experts hold, where no source has each rank's size of an all-to-all: NCCL Inspector sees PyTorch's
as sends and receives.

*Reference.* Sequence-length imbalance and uneven stages as the commonest reasons of slow steps:
What-if analysis (OSDI'25).
"""

from __future__ import annotations

import numpy as np

from alerts.detectors.straggler import (
    Suspected,
    culprit_of,
    evidence_of,
    held_more,
    is_fault,
    late_share,
    rows_of,
    suspects_of,
)
from alerts.finding import Finding
from alerts.signals.gaps import OwnTime, own_time
from alerts.signals.late import CLEAR_STEPS_MIN
from alerts.signals.replay import RANKS_NAMED_MAX, cost_of, labels_of
from alerts.signals.step_times import as_measured
from alerts.signals.what_if import cost_by_play
from alerts.window.columns import Floats
from alerts.window.model import JobWindow, Window
from collector.contract.figures import duration
from collector.contract.ranks_read import rank_words
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason

RANDOM_SHARE_MIN = 0.05
"""Of a step by which its slowest rank is typically late: ByteDance calls a job that loses a tenth
straggling, half of it is worth a word."""
SAME_MAX = 0.5
"""Of steps in which one rank may be the slowest, to call it random."""
STEPS_MIN = 10
NS = 1e9
COST_SHARE_MIN = 0.05
"""Of a step that uneven work must cost to be reported."""
STAGE_FACTOR_MIN = 1.3
"""By which a stage must take longer than the others: the first and the last have the embedding and
the loss beside their layers, which even cuts cannot balance to less than a fifth."""
STAGE_STEPS_SHARE = 0.7
"""Of steps in which the stage must be slower than the others."""


def detect(window: Window) -> list[Finding]:
    found: list[Finding] = []
    for job in window.looked:
        own = own_time(job)
        if own is None or np.isnan(own.excess_ns).all():
            continue
        stage = stage_of(window, job, own)
        lasting = lasting_of(window, job, own)
        if own.is_computing:
            varying = copies_of(window, job, own)
        else:
            varying = None if lasting or stage else varying_of(window, job, own)
        found += [*(one for one in (stage, varying) if one is not None), *lasting]
    return found


def lasting_of(window: Window, job: JobWindow, own: OwnTime) -> list[Finding]:
    """Ranks and hosts that always have somewhat more to do."""
    found = []
    for one in suspects_of(window, job, own):
        if is_fault(window, job, own, one):
            continue
        since = int(own.start_ns[one.stretch.first])
        last = int(own.end_ns[one.stretch.last])
        held = held_more(own, one)
        played = cost_of(job, own, rows_of(own, one), one.stretch) if held is not None else None
        is_felt = played is not None and played.lost_share >= COST_SHARE_MIN
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
                evidence=(
                    *evidence_of(job, own, one, (since, last)),
                    *(() if held is None else (evidence_of_held(job, own, one, held),)),
                ),
                cost=None if played is None else as_measured(played, job, since, last),
                is_context=window.is_live or not is_felt,
            )
        )
    return found


def evidence_of_held(job: JobWindow, own: OwnTime, one: Suspected, held: float) -> Evidence:
    """How much more tokens these ranks worked on."""
    ranks = own.ranks[one.rows]
    who = rank_words(ranks.tolist())
    return Evidence(
        metric="all_to_all_share",
        text=f"{who} sent {held:.2f} times what its peers did in all-to-alls that are uneven: so "
        "much more it had to work on, and it is late by no more than that explains",
        value=held, unit="ratio", baseline=1.0, from_ns=int(own.start_ns[one.stretch.first]),
        to_ns=int(own.end_ns[one.stretch.last]), labels=labels_of(job, ranks),
        samples=one.stretch.late,
    )  # fmt: skip


def stage_of(window: Window, job: JobWindow, own: OwnTime) -> Finding | None:
    """The stages of a pipeline that always take longer than the others."""
    stages = np.unique(own.stage[own.stage >= 0])
    if len(stages) < 2:  # noqa: PLR2004 - one has no other
        return None
    # The lower median: a stage is slow if most of its copies are.
    taken = np.stack([lower_median(own.outside_ns[own.stage == one]) for one in stages])
    usual = lower_median(taken)
    known = ~np.isnan(taken).any(axis=0)
    if int(known.sum()) < steps_min(own):
        return None
    share = (taken > STAGE_FACTOR_MIN * usual)[:, known].mean(axis=1)
    slow = stages[share >= STAGE_STEPS_SHARE]
    if not len(slow) or 2 * len(slow) > len(stages):
        return None
    members = np.isin(own.stage, slow)
    factor = np.ones(own.outside_ns.shape)
    factor[members] = np.minimum(1.0, usual / np.maximum(own.outside_ns[members], 1.0))
    cost = cost_by_play(job, own, factor, slice(0, len(own.start_ns)))
    if cost is None or cost.lost_share < COST_SHARE_MIN:
        return None
    ranks = own.ranks[members]
    seconds = float(np.nanmedian(own.outside_ns[members])) / NS
    others = float(np.nanmedian(usual)) / NS
    since, last = int(own.start_ns[0]), int(own.end_ns[-1])
    text = (
        f"ranks of this stage spend {duration(seconds)} of a step on work of their own, "
        f"ranks of other stages {duration(others)}"
    )
    culprits = [job.culprit(int(rank)) for rank in ranks[:RANKS_NAMED_MAX]]
    return Finding(
        detector="imbalance",
        cause=Cause.STRAGGLER,
        culprit=culprits[0],
        accomplices=tuple(culprits[1:]),
        strength=round(min(1.0, float(share.max()) * (0.5 + cost.lost_share)), 3),
        since_ns=since,
        until_ns=window.until(last),
        last_ns=last,
        reason=Reason.IMBALANCE,
        job=job.job,
        evidence=(
            Evidence(
                metric="stage_own", text=text, value=seconds, unit="seconds", baseline=others,
                from_ns=since, to_ns=last, labels=labels_of(job, ranks), samples=int(known.sum()),
            ),
        ),
        cost=cost,
        is_context=window.is_live,
    )  # fmt: skip


def steps_min(own: OwnTime) -> int:
    """Steps that show what is usual: kernels have little noise, and traces few steps."""
    return CLEAR_STEPS_MIN if own.is_computing else STEPS_MIN


def copies_of(window: Window, job: JobWindow, own: OwnTime) -> Finding | None:
    """Copies of a pipeline that compute longer in all of their stages: they were given more.

    A slow host has one stage, or its stages have it alike in every step.
    """
    factor = shares_of(own)
    known = ~np.isnan(factor).all(axis=0)
    if int(known.sum()) < steps_min(own) or any_late(window, job, own):
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        cost = cost_by_play(job, own, 1.0 / factor, slice(0, len(own.start_ns)))
    if cost is None or cost.lost_share < COST_SHARE_MIN:
        return None
    share = factor[:, known]
    most = np.nanmax(share, axis=0)
    slowest = own.pipeline[np.nanargmax(share, axis=0)]
    same = float(np.bincount(slowest).max()) / len(slowest)
    since, last = int(own.start_ns[known][0]), int(own.end_ns[known][-1])
    text = (
        f"in a typical step the copy of the pipeline with the most work computes "
        f"{float(np.median(most)) - 1.0:.0%} longer than the average one, in all of its stages "
        f"alike; one copy is that in {same:.0%} of steps"
    )
    return Finding(
        detector="imbalance",
        cause=Cause.STRAGGLER,
        culprit=Culprit(job=job.job),
        strength=round(min(1.0, 0.5 + cost.lost_share), 3),
        since_ns=since,
        until_ns=window.until(last),
        last_ns=last,
        reason=Reason.IMBALANCE,
        job=job.job,
        evidence=(
            Evidence(
                metric="copy_work", text=text, value=float(np.median(most)), unit="ratio",
                baseline=1.0, from_ns=since, to_ns=last, labels={"job": job.job},
                samples=len(slowest),
            ),
        ),
        cost=cost,
        is_context=window.is_live,
    )  # fmt: skip


def shares_of(own: OwnTime) -> Floats:
    """How much longer than the average of its copies each rank's pipeline computes, in each step.

    The median over its stages, so that one slow rank makes no copy; NaN where nothing is known.
    """
    longer = np.full(own.outside_ns.shape, np.nan)
    for stage in np.unique(own.stage[own.stage >= 0]).tolist():
        members = np.flatnonzero(own.stage == stage)
        taken = own.outside_ns[members]
        if len(members) > 1:
            mean = taken.mean(axis=0)
            longer[members] = np.where(mean > 0, taken / np.where(mean > 0, mean, 1.0), np.nan)
    found = np.full(longer.shape, np.nan)
    for name in np.unique(own.pipeline[own.pipeline >= 0]).tolist():
        stages = np.flatnonzero(own.pipeline == name)
        found[stages] = np.median(longer[stages], axis=0)
    return found


def any_late(window: Window, job: JobWindow, own: OwnTime) -> bool:
    """Whether a rank is late by itself: then its copy differs from the others because of it."""
    return bool(suspects_of(window, job, own))


def lower_median(values: Floats) -> Floats:
    """Of each column without its NaNs; NaN for a column of nothing else."""
    ordered = np.sort(values, axis=0)
    place = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0) // 2
    found: Floats = np.take_along_axis(ordered, place[None], axis=0)[0]
    return found


def varying_of(window: Window, job: JobWindow, own: OwnTime) -> Finding | None:
    known = ~np.isnan(own.excess_ns).all(axis=0)
    if int(known.sum()) < STEPS_MIN:
        return None
    # A pipeline that has the longer sequences is late as a whole.
    late = own.excess_ns + own.together_ns
    excess = np.where(np.isnan(late), -np.inf, late)[:, known]
    whole = np.where(own.pipeline >= 0, own.pipeline, np.arange(len(own.ranks)))
    slowest = whole[excess.argmax(axis=0)]
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
        cost=Cost(
            job=job.job,
            lost_seconds=float(excess.max(axis=0).sum()) / NS,
            step_seconds=None,
            step_seconds_without=None,
            lost_share=share,
            gpu_hours=float(excess.max(axis=0).sum()) / NS * job.size / 3600,
        ),
        is_context=True,
    )  # fmt: skip
