"""What a version says about a case, against what the operator said. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from alerts.cases.model import Says, Told, Truth
from alerts.judge.incident import OPEN_CONFIDENCE
from alerts.judge.names import names_of, same_thing
from collector.contract.verdict import Cause, Culprit, Verdict


class Mark(enum.StrEnum):
    """Whether a version agrees with the operator."""

    AGREES = "agrees"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """The refuted verdict is not repeated, and what would be right the operator did not know."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The mark, and the verdict that it was given for; None: there was none."""

    mark: Mark
    told: Told | None


def compare(truth: Truth, verdicts: Sequence[Verdict]) -> Compared:
    """A window may show other troubles too: a verdict about one of those is no mistake.

    A verdict that is less sure than what opens an incident says nothing, unless the one that the
    operator judged was no surer.
    """
    least = min(OPEN_CONFIDENCE, truth.told.confidence)
    said = [Told.of(each) for each in verdicts if each.confidence >= least]
    cause, culprit = expected(truth)
    for told in said:
        if is_said(told, cause, culprit):
            mark = Mark.WRONG if truth.says is Says.WRONG else Mark.AGREES
            return Compared(mark=mark, told=told)
    mark = Mark.UNKNOWN if truth.says is Says.WRONG else Mark.WRONG
    return Compared(mark=mark, told=nearest(truth, said))


def expected(truth: Truth) -> tuple[Cause, Culprit]:
    """The cause and culprit that were affirmed or, of WRONG, refuted."""
    if truth.says is not Says.OTHER:
        return truth.told.cause, truth.told.culprit
    # An operator who names only another culprit keeps the cause, and the other way round.
    return truth.cause or truth.told.cause, truth.culprit


def is_said(told: Told, cause: Cause, culprit: Culprit) -> bool:
    if told.cause is not cause:
        return False
    if not is_named(culprit):
        # No culprit, or a job alone, was named: the job must be the same where both name one.
        return not (culprit.job and told.culprit.job) or culprit.job == told.culprit.job
    return told.culprit == culprit or same_thing(told.culprit, culprit)


def is_named(culprit: Culprit) -> bool:
    return bool(names_of(culprit) - names_of(Culprit(job=culprit.job)))


def nearest(truth: Truth, said: Sequence[Told]) -> Told | None:
    """What the version says instead: about the same thing or job if it can be, else the first."""
    culprit = truth.told.culprit
    about = [told for told in said if same_thing(told.culprit, culprit)]
    about += [told for told in said if culprit.job and told.culprit.job == culprit.job]
    return next(iter((*about, *said)), None)
