"""Which verdicts say the same, which say more, and which are about two troubles. Pure."""

from __future__ import annotations

import enum

from alerts.judge.names import names_of, same_thing
from collector.contract.cause_facts import Family
from collector.contract.verdict import Cause, Culprit, Reason, Verdict

APART_CONFIDENCE = 0.7
"""Two verdicts of one round are two troubles if each is that certain."""
SUSPECTS_MIN = 2
"""A verdict with so many suspects has not decided between them."""


class Says(enum.Enum):
    """What a verdict says beside a standing one of the same cause and the same thing."""

    SAME = enum.auto()
    """The same reason; as many names, or fewer."""
    LESS = enum.auto()
    """No reason, where the standing verdict has one."""
    MORE = enum.auto()
    """A reason or names that the standing verdict lacks, and nothing else."""
    OTHERWISE = enum.auto()
    """Another reason, or other names of it."""


def confirms(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it has the standing verdict's cause and culprit, with the same names or fewer."""
    if is_exact(verdict, standing):
        return True
    return (
        verdict.cause is standing.cause
        and same_thing(verdict.culprit, standing.culprit)
        and names_of(verdict.culprit) < names_of(standing.culprit)
    )


def is_exact(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it has the standing verdict's cause and its culprit, name by name."""
    if verdict.cause is not standing.cause or verdict.culprit != standing.culprit:
        return False
    # Without a culprit only the job identifies the trouble.
    return bool(names_of(verdict.culprit)) or bool({*verdict.jobs} & {*standing.jobs})


def says(verdict: Verdict, standing: Verdict) -> Says:
    """What it says of the standing verdict's trouble, by its reason and its names."""
    mine, theirs = names_of(verdict.culprit), names_of(standing.culprit)
    is_new = standing.reason is Reason.UNKNOWN and verdict.reason is not Reason.UNKNOWN
    if not is_new and verdict.reason is not standing.reason:
        return Says.LESS if verdict.reason is Reason.UNKNOWN else Says.OTHERWISE
    if mine >= theirs:
        return Says.MORE if is_new or mine > theirs else Says.SAME
    # A reason that fewer names were given for is not that of a narrower thing: both or none.
    return Says.OTHERWISE if is_new or not mine < theirs else Says.SAME


def is_back(verdict: Verdict, ended: Verdict) -> bool:
    """Whether it shows the trouble of an ended verdict again: its cause, culprit and reason.

    One that has more names, or a reason now, may be about the same; one with another may not.
    """
    reasons = {verdict.reason, ended.reason} - {Reason.UNKNOWN}
    return len(reasons) <= 1 and (confirms(verdict, ended) or confirms(ended, verdict))


def refines(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it repeats the standing verdict with more names: a hang is a stall with a culprit."""
    is_same = verdict.cause is standing.cause
    is_named_now = standing.cause is Cause.STALL and verdict.cause is Cause.HANG
    return (is_same or is_named_now) and names_of(standing.culprit) < names_of(verdict.culprit)


def accuses_another(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it accuses another culprit than the standing verdict.

    Not if the one is a part of the other, or an accomplice; nor if the standing verdict had not
    decided between both, or has accused none.
    """
    if any(is_unnamed(each.culprit) for each in (verdict, standing)):
        return False
    if verdict.culprit in standing.accomplices or standing.culprit in verdict.accomplices:
        return False
    suspects = standing.undecided.suspects if standing.undecided is not None else ()
    if any(same_thing(one.culprit, verdict.culprit) for one in suspects):
        return False
    return not same_thing(verdict.culprit, standing.culprit) or are_parts(
        verdict.culprit, standing.culprit
    )


def is_unnamed(culprit: Culprit) -> bool:
    return culprit == Culprit(job=culprit.job)


def are_parts(one: Culprit, other: Culprit) -> bool:
    """Whether they are two parts of a host: a NIC, and a GPU or rank."""
    computes = [each.gpu is not None or each.rank is not None for each in (one, other)]
    sends = [bool(each.device) for each in (one, other)]
    return not any(map(all, zip(computes, sends, strict=True))) and (
        (computes[0] and sends[1]) or (sends[0] and computes[1])
    )


def leaves_open(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it repeats the trouble of a decided verdict, and does not decide it itself.

    What decided (a burst capture) leaves the window after some minutes. A verdict that then names
    the standing culprit as one of several suspects shows that the trouble goes on, and no more.
    """
    undecided = verdict.undecided
    if undecided is None or len(undecided.suspects) < SUSPECTS_MIN or standing.undecided:
        return False
    is_same = verdict.cause is standing.cause and verdict.confidence < standing.confidence
    return (
        is_same
        and bool({*verdict.jobs} & {*standing.jobs})
        and any(same_thing(one.culprit, standing.culprit) for one in undecided.suspects)
    )


def is_apart(one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts on one job are two troubles: both certain, with culprits of their own.

    What a rank spends outside of collectives no cable can lengthen and no other rank, and what a
    transfer takes once all ranks have come none of them can: each is measured without the other.
    Two places in the network explain each other's slowness; there each needs a counter that proves
    it. A job that stands still shows nothing else.
    """
    if min(one.confidence, other.confidence) < APART_CONFIDENCE:
        return False
    if not names_of(one.culprit) or same_thing(one.culprit, other.culprit):
        return False
    families = {one.cause.facts.family, other.cause.facts.family}
    if Family.STUCK in families or not names_of(other.culprit):
        return False
    if Family.RANK in families:
        return True
    return not any(each.cause.facts.is_soft or is_bare(each) for each in (one, other))


def is_bare(verdict: Verdict) -> bool:
    """Whether a job's own times are the only evidence: bytes are slow, the reason is unknown."""
    return verdict.cause is Cause.SLOW_LINK and verdict.reason is Reason.UNKNOWN
