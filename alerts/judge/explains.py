"""What a machine's finding explains of a job: its place, its strength, and when it began. Pure.

A job's own times say that transfers are slow and suspect places; a port's finding says what is
wrong there. Whether the one explains the other is weighed here, and what a port's finding alone is
worth where no job's times are clear.
"""

from __future__ import annotations

from collections.abc import Sequence

from alerts.finding import Finding
from alerts.judge.places import Surroundings, is_same
from alerts.window.model import Window
from collector.contract.causes import by_reason
from collector.contract.units import NS
from collector.contract.verdict import Cause, Layer, Reason

ROOTS = tuple(
    sorted(
        depth
        for cause in Cause
        for depth in (cause.facts.depth, *(row.depth for row in cause.facts.by_reason.values()))
        if depth is not None
    )
)
"""Depths of all network findings of machines, from the root of trouble to its symptoms."""

TOGETHER_NS = 30 * NS
"""Two findings that begin within this time of each other may be cause and effect: a switch that is
polled every ten seconds shows things up to twenty seconds late."""
STRENGTH_MIN = 0.3
"""Weaker findings explain others and never become verdicts."""
ALONE_STRENGTH_MIN = 0.6
"""A machine's finding becomes a verdict without a job that suffers measurably only if it is this
clear: jobs hide a part of their communication behind computing."""
SHARE_MIN = 0.05
"""Share of a job's bytes that must cross a place before it is blamed: one of twenty equal paths."""
CLEAR_STRENGTH_MIN = 0.9
CLEAR_SHARE_MIN = 0.01
"""The same for what a counter proves and what nothing else explains, such as damaged packets: where
flows are spread over sixty-four equal ways, each of them is likely to carry one in sixty-four. Also
where slow transfers are to be explained by a port that counts several NICs' bytes beside idle ones:
then the ways are not equal, and their number says nothing of what it carries."""


def is_solid(finding: Finding) -> bool:
    """Whether it may become a verdict, or a part of one."""
    return not finding.is_context and finding.strength >= STRENGTH_MIN


def overlaps(one: Finding, other: Finding) -> bool:
    """Whether two findings can belong together: one begins while the other lasts, or soon after."""
    return (
        one.since_ns <= other.last_ns + TOGETHER_NS and other.since_ns <= one.last_ns + TOGETHER_NS
    )


def begin_together(one: Finding, other: Finding) -> bool:
    return abs(one.since_ns - other.since_ns) <= TOGETHER_NS


def root_rank(finding: Finding) -> int:
    """How near to the root a machine's finding is: 0 is nearest."""
    depth = by_reason(finding.cause, finding.reason).depth
    depth = finding.cause.facts.depth if depth is None else depth
    return len(ROOTS) if depth is None else ROOTS.index(depth)


def is_network(finding: Finding) -> bool:
    return finding.cause.facts.layer is Layer.NETWORK


# A job's slow transfers --------------------------------------------------------------------------


def blame(window: Window, finding: Finding, symptom: Finding, around: Surroundings) -> float:
    """How much a port's finding explains a slow transfer; 0: not at all.

    Counts its place (accused by the job's own times, or on the path of the slow bytes), its
    distance to the root, its strength, and whether both began together.
    """
    accused = max(
        (
            suspect.share
            for suspect in symptom.suspects
            if is_same(window.ports, suspect.culprit, finding.culprit)
        ),
        default=0.0,
    )
    if is_same(window.ports, symptom.culprit, finding.culprit):
        accused = max(accused, 1.0 / max(1, len(symptom.suspects)))
    crossing = around.share_of(finding.culprit, symptom.communicators)
    if max(accused, crossing) < share_min(finding, symptom):
        return 0.0
    place = 0.3 + 0.7 * accused + 0.2 * crossing
    together = 1.0 if begin_together(finding, symptom) else 0.4
    rank = root_rank(finding)
    return place * together * finding.strength * (1.0 - rank / (2 * len(ROOTS)))


def is_felt(window: Window, finding: Finding, around: dict[str, Surroundings]) -> bool:
    """Whether a finding matters without a job's times: a job's bytes cross it, or none is known.

    Between two jobs people work on cables: what begins there holds up no job.
    """
    if finding.strength < ALONE_STRENGTH_MIN:
        return False
    if not window.jobs:
        ended = window.jobs_ended_ns
        return ended is None or finding.since_ns <= ended + TOGETHER_NS
    least = CLEAR_SHARE_MIN if is_proven(finding) else SHARE_MIN
    return any(place.share_of(finding.culprit) >= least for place in around.values())


def is_proven(finding: Finding) -> bool:
    return finding.strength >= CLEAR_STRENGTH_MIN and not finding.cause.facts.is_soft


def share_min(finding: Finding, symptom: Finding) -> float:
    """Share of slow bytes that must be expected at a place that is to explain them."""
    is_one_of_many = is_unequal(finding) and begin_together(finding, symptom)
    return CLEAR_SHARE_MIN if is_proven(finding) or is_one_of_many else SHARE_MIN


def slightly_slowed(
    window: Window, finding: Finding, slow: Sequence[Finding], around: dict[str, Surroundings]
) -> list[Finding]:
    """Transfers too unclear to accuse anybody, which an unequal spread at one port explains.

    Two witnesses that know nothing of each other: a port counts several NICs' bytes while those
    beside it idle, and transfers that may cross it are slow from that moment on. Only for a port
    that no job would be taken to feel otherwise: one of more than twenty equal ways.
    """
    if not is_unequal(finding) or finding.strength < ALONE_STRENGTH_MIN:
        return []
    if is_felt(window, finding, around):
        return []
    return [
        one
        for one in slow
        if not one.is_context
        and not is_solid(one)
        and begin_together(finding, one)
        and lasts_with(finding, one)
        and blame(window, finding, one, around[one.job]) > 0
    ]


def is_unequal(finding: Finding) -> bool:
    """Whether a port's own bytes show that ways which count as equal are not."""
    return finding.cause is Cause.CONGESTION and finding.reason is Reason.ROUTING


def lasts_with(reason: Finding, symptom: Finding) -> bool:
    """Whether a reason is there for most of the lateness, or for a good part of it and still.

    One pause of a loader, and sequences that happen to be long for minutes around it, are two
    things of which neither is a fault. A pause a moment ago is still there, too: whether it stays
    is seen a little later.
    """
    common = min(reason.last_ns, symptom.last_ns) - max(reason.since_ns, symptom.since_ns)
    whole = symptom.last_ns - symptom.since_ns
    is_there = reason.last_ns >= symptom.last_ns - TOGETHER_NS
    return 2 * common >= whole or (is_there and 3 * common >= whole)
