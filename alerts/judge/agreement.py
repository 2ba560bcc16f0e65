"""Which verdicts say the same, which say more, and which are about two troubles. Pure."""

from __future__ import annotations

from alerts.judge.names import names_of, same_thing
from collector.contract.cause_facts import Family
from collector.contract.verdict import Cause, Reason, Verdict

APART_CONFIDENCE = 0.7
"""Two verdicts of one round are two troubles if each is that certain."""
SUSPECTS_MIN = 2
"""A verdict with so many suspects has not decided between them."""


def confirms(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it repeats the standing verdict, with the same names or fewer of them."""
    if verdict.cause is not standing.cause:
        return False
    if verdict.culprit == standing.culprit:
        # Without a culprit only the job identifies the trouble.
        return bool(names_of(verdict.culprit)) or bool({*verdict.jobs} & {*standing.jobs})
    return same_thing(verdict.culprit, standing.culprit) and (
        names_of(verdict.culprit) < names_of(standing.culprit)
    )


def refines(verdict: Verdict, standing: Verdict) -> bool:
    """Whether it repeats the standing verdict with more names: a hang is a stall with a culprit."""
    is_same = verdict.cause is standing.cause
    is_named_now = standing.cause is Cause.STALL and verdict.cause is Cause.HANG
    return (is_same or is_named_now) and names_of(standing.culprit) < names_of(verdict.culprit)


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
