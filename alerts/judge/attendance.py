"""What a verdict on a part of a job's ranks is worth. Pure.

A capture often holds some ranks only, and absence is no evidence. Where a rank that nothing was
read of could explain what was seen, no rank is accused above a half, and the next thing to do is to
collect its file. What a rank's own record shows of itself (it computes longer, it waits in nothing)
no other rank explains: there the confidence falls with the share that was read.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.finding import Finding
from alerts.judge.words import UNSURE_MAX
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import Family, Layer
from collector.contract.ranks_read import RANKS_READ, collect_words, nothing_read
from collector.contract.verdict import Evidence

SHARE_MIN = 0.5
"""Of the job's ranks, and of those that the accused is held against, more must have been read: with
half of them there is no majority that shows what is usual."""
PAIR = 2
NAMED_MAX = 64
"""Ranks that the evidence names; all are counted."""


class Doubt(msgspec.Struct, frozen=True):
    """How certain a verdict can be at most, and why."""

    confidence_max: float
    evidence: Evidence
    collect: str
    """The files that would end it."""


def doubt_of(window: Window, root: Finding, symptoms: Sequence[Finding]) -> Doubt | None:
    """None: everything that matters was read, or it was not asked."""
    own = [one for one in (root, *symptoms) if one.job]
    jobs = {job.job: job for job in window.jobs}
    doubts = [
        found
        for one in own
        if (job := jobs.get(one.job)) is not None
        and (found := doubt_in(job, root, one)) is not None
    ]
    return min(doubts, key=lambda one: one.confidence_max, default=None)


def doubt_in(job: JobWindow, root: Finding, finding: Finding) -> Doubt | None:
    if finding.cause.facts.family is Family.STUCK:
        if not finding.unread or job.dumped is None:
            return None
        read = len(job.dumped)
        limit = UNSURE_MAX if finding.is_unsure else (1 + read / job.size) / 2
        return to_doubt(limit, job, finding, finding.unread, read, "flight_recorder")
    if job.ranks_read is None or job.ranks_read >= job.size:
        return None
    share = min(job.ranks_read / job.size, share_beside(job, finding))
    limit = UNSURE_MAX if share <= SHARE_MIN else (1 + share) / 2
    if root.job and Layer.NETWORK in (root.cause.facts.layer, finding.cause.facts.layer):
        # A rank that comes late makes all others wait, which looks like a slow transfer to them.
        # Where transfers are slow ranks leave far apart: only all of them show who was late.
        limit = UNSURE_MAX
    return to_doubt(limit, job, finding, job.unread, job.ranks_read, job.source)


def share_beside(job: JobWindow, finding: Finding) -> float:
    """The smallest share that was read of a communicator of the accused."""
    accused = {
        number
        for number, rank in job.ranks.items()
        if number == finding.culprit.rank
        or (finding.culprit.rank is None and rank.host and rank.host == finding.culprit.host)
    }
    shares = [
        len(job.recorded.get(one.name, ())) / one.ranks
        for one in job.communicators.values()
        if one.ranks > PAIR and one.name in job.recorded and accused & {*one.job_rank.values()}
    ]
    return min(shares, default=1.0)


def to_doubt(
    limit: float, job: JobWindow, finding: Finding, unread: Sequence[int], read: int, source: str
) -> Doubt:
    evidence = Evidence(
        metric=RANKS_READ,
        text=nothing_read(unread, read, job.size, is_open=limit <= UNSURE_MAX),
        value=float(read),
        unit="ranks",
        baseline=float(job.size),
        from_ns=finding.since_ns,
        to_ns=finding.last_ns,
        labels={
            "job": job.job,
            "ranks": ",".join(map(str, unread[:NAMED_MAX])),
        },
        samples=read,
    )
    return Doubt(limit, evidence, collect_words(unread, job.size - read, source))
