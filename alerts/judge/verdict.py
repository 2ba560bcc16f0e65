"""From findings to verdicts: one root, its victims explained by it, what was ruled out. Pure.

A job's own times show that it suffers and accuse a rank or link (`straggler`, `slow_link`, `hang`,
`stall`); readings of machines show faults whether or not a job suffers (a port that loses packets,
a GPU that throttles). A verdict joins the two: the machine's finding at the accused, or on the path
of the slow bytes, at the same time. Of several the judge takes the one nearest to the root: a cable
that damages packets also makes queues, pauses and marks, and never the other way round. What a root
explains is its victim and no verdict of its own.

The judge does not accuse early: evidence arrives at different speeds (collectives within seconds,
switches at their next poll), so a verdict waits until evidence for a better one had time to arrive
(`waits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from alerts.detectors import detect_all
from alerts.finding import Finding
from alerts.judge.attendance import doubt_of
from alerts.judge.beside import costs_apart
from alerts.judge.confidence import confidence
from alerts.judge.explains import (
    ALONE_STRENGTH_MIN,
    SHARE_MIN,
    STRENGTH_MIN,
    TOGETHER_NS,
    begin_together,
    blame,
    is_felt,
    is_network,
    is_solid,
    lasts_with,
    overlaps,
    root_rank,
    slightly_slowed,
)
from alerts.judge.kernel_words import kernel_words
from alerts.judge.places import (
    Surroundings,
    feeds,
    is_near,
    is_same,
    port_row,
    share_last_out,
    with_all_names,
)
from alerts.judge.ruled_out import ruled_out
from alerts.judge.sharing import is_harmless, passed_by_others, shared_cable
from alerts.judge.undecided import undecided_of
from alerts.judge.words import action, summary
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import Family
from collector.contract.kernel import MESSAGES
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Layer, Reason, Verdict

AFTERMATH_NS = 10 * NS
"""What begins so long after the end of another trouble is not its effect: counters are read as
seldom."""
HARD_WAIT_NS = 3 * NS
SOFT_WAIT_NS = 8 * NS
BARE_WAIT_NS = 11 * NS
"""How long ago a case must have begun: one that a counter proves; one that may be another's effect;
and one that only the job's own times show. Agents read every five seconds and switches are polled
every ten: by then all evidence has arrived."""
LAST_OUT_MIN = 0.5
"""Of slow operations that ranks of one host leave last: it is where the slow bytes arrive."""
SURELY_LATE = 0.9
"""The confidence from which a rank that is late beside trouble in the network is accused, too."""
CASES_MAX = 256
"""Cases that are compared pairwise. More at once are one trouble with many signs, and its root is
among those that a job feels or that are clear."""
SWITCH_LINKS_MIN = 4
"""Links of one switch that go down within the same minutes before the switch is blamed: two bad
cables are chance, a card or a reboot takes many."""
VICTIMS_MAX = 64
EVIDENCE_MAX = 24
"""Of one verdict: as much as a person reads."""


class Case(msgspec.Struct, kw_only=True):
    """A verdict in the making: a root, the jobs that suffer from it, and what it explains."""

    root: Finding
    culprit: Culprit
    symptoms: list[Finding] = []
    """Jobs' own findings that it explains."""
    explained: list[Finding] = []
    """Machines' findings that are its effects."""
    support: list[Finding] = []
    """Machines' findings that give the reason, beside the root itself."""

    @property
    def is_bare(self) -> bool:
        return bool(self.root.job) and not self.support

    @property
    def is_clearly_felt(self) -> bool:
        """Whether a job's times say so by themselves, and not only beside the root."""
        return any(map(is_solid, self.symptoms))


def judge(window: Window, findings: Sequence[Finding] | None = None) -> list[Verdict]:
    found = detect_all(window) if findings is None else findings
    solid = [one for one in found if is_solid(one)]
    around = {job.job: Surroundings(window, job) for job in window.jobs}
    machines = [one for one in solid if not one.job]
    cases = [
        *network_cases(window, found, machines, around),
        *compute_cases(window, solid, machines),
        *slight_cases(window, found, machines),
        *standstill_cases(window, solid, machines, around),
    ]
    joined = by_switch(window, merged(window, foremost(cases)))
    kept = without_effects(window, joined, around)
    verdicts = [to_verdict(window, case, found, around) for case in kept if not waits(window, case)]
    apart = costs_apart(window, verdicts)
    return sorted(apart, key=lambda one: (-cost_of(one), one.since_ns, repr(one.culprit)))


# What explains what ------------------------------------------------------------------------------


def is_standstill(finding: Finding) -> bool:
    return finding.cause.facts.family is Family.STUCK


def network_cases(
    window: Window,
    findings: Sequence[Finding],
    machines: Sequence[Finding],
    around: dict[str, Surroundings],
) -> list[Case]:
    """Slow transfers with the findings that explain them, and ports' findings without any."""
    ports = [one for one in machines if is_network(one)]
    slow = [one for one in findings if is_network(one) and one.job in around]
    cases: dict[int, Case] = {}
    bare: list[Case] = []
    for symptom in filter(is_solid, slow):
        scored = [
            (blame(window, one, symptom, around[symptom.job]), one)
            for one in ports
            if overlaps(one, symptom)
        ]
        guilty = [(score, one) for score, one in scored if score > 0]
        if not guilty:
            bare += bare_cases(window, around[symptom.job].job, symptom)
            continue
        _, root = max(guilty, key=lambda each: (each[0], each[1].strength, repr(each[1].culprit)))
        case = cases.setdefault(id(root), Case(root=root, culprit=root.culprit))
        case.symptoms.append(symptom)
        case.explained += [one for _, one in guilty if one is not root]
    explained = {id(one) for case in cases.values() for one in case.explained}
    for one in ports:
        if id(one) in cases or id(one) in explained:
            continue
        slight = slightly_slowed(window, one, slow, around)
        if slight or is_felt(window, one, around):
            cases[id(one)] = Case(root=one, culprit=one.culprit, symptoms=slight)
    return [*cases.values(), *bare]


def bare_cases(window: Window, job: JobWindow, symptom: Finding) -> list[Case]:
    """A slow transfer that no port's finding explains, or what else the job's bytes meet."""
    root = shared_cable(window, job, symptom) or passed_by_others(window, job, symptom)
    if root is None:
        return [Case(root=symptom, culprit=symptom.culprit, symptoms=[symptom])]
    if is_harmless(job, symptom, is_named=names_somebody(root.culprit)):
        return []
    if not names_somebody(root.culprit):
        # Whom the job's times accused is as well as the ways beside it.
        symptom = msgspec.structs.replace(symptom, suspects=())
    return [Case(root=root, culprit=root.culprit, symptoms=[symptom])]


def compute_cases(
    window: Window, findings: Sequence[Finding], machines: Sequence[Finding]
) -> list[Case]:
    cases = []
    for symptom in findings:
        if symptom.cause.facts.family is not Family.RANK or not symptom.job:
            continue
        reasons = [
            one
            for one in machines
            if not is_network(one)
            and overlaps(one, symptom)
            and is_same(window.ports, one.culprit, symptom.culprit)
        ]
        reasons.sort(key=lambda one: (-one.strength, repr(one.culprit)))
        cases.append(
            Case(root=symptom, culprit=symptom.culprit, symptoms=[symptom], support=reasons)
        )
    if not window.jobs:
        # No client reports what jobs do: readings of machines are the only evidence.
        cases += [
            Case(root=one, culprit=one.culprit)
            for one in machines
            if one.cause.facts.family is Family.RANK and one.strength >= ALONE_STRENGTH_MIN
        ]
    return cases


def slight_cases(
    window: Window, findings: Sequence[Finding], machines: Sequence[Finding]
) -> list[Case]:
    """Ranks that are too little late to be accused by that, where their machine says why.

    Two witnesses that know nothing of each other: a job's times, and readings of the very host or
    GPU, which began together and last together.
    """
    cases = []
    for symptom in findings:
        is_slight = not symptom.is_context and symptom.strength < STRENGTH_MIN
        if not is_slight or not symptom.job or symptom.cause.facts.family is not Family.RANK:
            continue
        if any(
            is_clear(one) and is_same(window.ports, one.culprit, symptom.culprit)
            for one in findings
        ):
            continue
        reasons = [
            one
            for one in machines
            if not is_network(one)
            and one.cause.facts.family is Family.RANK
            and one.strength >= ALONE_STRENGTH_MIN
            and begin_together(one, symptom)
            and lasts_with(one, symptom)
            and is_same(window.ports, one.culprit, symptom.culprit)
        ]
        if reasons:
            reasons.sort(key=lambda one: (-one.strength, repr(one.culprit)))
            culprit = symptom.culprit
            if all(one.culprit.gpu is None for one in reasons):
                # The host is short of something: which of its ranks feels it first is chance.
                culprit = Culprit(job=culprit.job, host=culprit.host)
            cases.append(Case(root=symptom, culprit=culprit, symptoms=[symptom], support=reasons))
    return cases


def is_clear(finding: Finding) -> bool:
    """Whether a job's own times accuse a rank clearly enough."""
    is_rank = finding.cause.facts.family is Family.RANK and bool(finding.job)
    return is_rank and not finding.is_context and finding.strength >= STRENGTH_MIN


def standstill_cases(
    window: Window,
    findings: Sequence[Finding],
    machines: Sequence[Finding],
    around: dict[str, Surroundings],
) -> list[Case]:
    cases = []
    for symptom in findings:
        if not is_standstill(symptom) or not symptom.job:
            continue
        place = around.get(symptom.job)
        reasons = [
            one
            for one in machines
            if overlaps(one, symptom)
            and one.cause.facts.stops_jobs
            and one.until_ns is None
            and place is not None
            and (
                is_same(window.ports, one.culprit, symptom.culprit)
                or (not names_somebody(symptom.culprit) and is_part_of(one, place))
            )
        ]
        reasons.sort(key=lambda one: (root_rank(one), -one.strength, repr(one.culprit)))
        culprit = symptom.culprit
        if reasons and not names_somebody(culprit):
            culprit = reasons[0].culprit
            if symptom.cause is Cause.STALL and reasons[0].cause is Cause.HANG:
                # A stall has no culprit: with one it is a hang.
                symptom = msgspec.structs.replace(symptom, cause=Cause.HANG)  # noqa: PLW2901
        cases.append(Case(root=symptom, culprit=culprit, symptoms=[symptom], support=reasons))
    used = {id(one) for case in cases for one in case.support}
    cases += [
        Case(root=one, culprit=one.culprit)
        for one in machines
        if is_standstill(one) and id(one) not in used and is_felt(window, one, around)
    ]
    return cases


def names_somebody(culprit: Culprit) -> bool:
    """Whether there is a culprit: a job alone is none."""
    return bool(culprit.host or culprit.switch or culprit.storage) or culprit.rank is not None


def is_part_of(finding: Finding, place: Surroundings) -> bool:
    """Whether a machine's finding concerns something that the job itself uses."""
    return place.share_of(finding.culprit) > 0.0


# Merging -----------------------------------------------------------------------------------------


def foremost(cases: Sequence[Case]) -> list[Case]:
    order = sorted(
        cases, key=lambda case: (not case.symptoms, -case.root.strength, repr(case.root))
    )
    return order[:CASES_MAX]


def by_switch(window: Window, cases: Sequence[Case]) -> list[Case]:
    """Links that go down together at one switch are that switch's trouble, not theirs."""
    ports = window.ports
    at: dict[str, list[Case]] = {}
    for case in cases:
        row = port_row(ports, case.culprit) if case.root.cause is Cause.LINK_FLAP else None
        for end in () if row is None else (row, int(ports.other_end[row])):
            if end >= 0 and ports.is_switch[end]:
                at.setdefault(ports.host[end], []).append(case)
    kept = list(cases)
    for switch, own in sorted(at.items(), key=lambda each: (-len(each[1]), each[0])):
        there = [case for case in own if case in kept]
        if len(there) < SWITCH_LINKS_MIN:
            continue
        first = max(there, key=lambda case: (case.root.strength, repr(case.culprit)))
        root = msgspec.structs.replace(
            first.root,
            culprit=Culprit(switch=switch),
            reason=Reason.SWITCH,
            since_ns=min(case.root.since_ns for case in there),
            last_ns=max(case.root.last_ns for case in there),
            accomplices=tuple(with_all_names(window, case.culprit) for case in there)[:VICTIMS_MAX],
        )
        whole = Case(root=root, culprit=root.culprit)
        for case in there:
            kept.remove(case)
            whole.symptoms += case.symptoms
            whole.support += case.support
            whole.explained += [case.root, *case.explained]
        kept.append(whole)
    return kept


def merged(window: Window, cases: Sequence[Case]) -> list[Case]:
    kept: list[Case] = []
    for case in sorted(cases, key=lambda each: (each.root.since_ns, repr(each.culprit))):
        for other in kept:
            is_one = (
                other.root.cause is case.root.cause
                and names_somebody(case.culprit)
                and is_same(window.ports, other.culprit, case.culprit)
                and overlaps(other.root, case.root)
            )
            if is_one:
                other.symptoms += case.symptoms
                other.explained += case.explained
                other.support += case.support
                if case.root.strength > other.root.strength:
                    other.root, other.culprit = case.root, case.culprit
                break
        else:
            kept.append(case)
    return kept


def without_effects(
    window: Window, cases: Sequence[Case], around: dict[str, Surroundings]
) -> list[Case]:
    """Cases that are no other case's effect; what an effect shows goes to its cause."""
    kept = []
    for case in cases:
        causes = [
            other
            for other in cases
            if other is not case
            and overlaps(other.root, case.root)
            and (
                is_effect(window, case, other, around)
                or waits_for_storage(case, other)
                or is_beside(case, other, around)
            )
        ]
        if causes:
            causes[0].explained.append(case.root)
            causes[0].symptoms += [one for one in case.symptoms if one not in causes[0].symptoms]
        else:
            kept.append(case)
    return kept


def is_at_the_end(window: Window, case: Case, other: Case) -> bool:
    """Whether slow transfers mostly end at the host that a case accuses of being late."""
    host, root = case.culprit.host, case.root
    jobs = {job.job: job for job in window.jobs}
    is_late = root.cause.facts.family is Family.RANK and bool(host)
    return (
        is_late
        and root.since_ns >= other.root.since_ns - TOGETHER_NS
        and not begins_after(root, other.root)
        and any(
            share_last_out(jobs[one.job], one, host) >= LAST_OUT_MIN
            for one in (other.root, *other.symptoms)
            if one.job in jobs and one.communicators
        )
    )


def is_beside(case: Case, other: Case, around: dict[str, Surroundings]) -> bool:
    """Whether ranks that are not surely late have bytes to bring past trouble in the network.

    What waits for its bytes comes late to what follows. Steps are long meanwhile, so that few have
    been seen; ranks with trouble of their own are late in the next ones, too.
    """
    root, culprit = case.root, case.culprit
    if root.cause.facts.family is not Family.RANK or not case.is_bare or root.job not in around:
        return False
    is_root = is_network(other.root) and other.root.since_ns <= root.since_ns + TOGETHER_NS
    if not is_root or begins_after(root, other.root):
        return False
    if confidence(root, case.symptoms, case.support) >= SURELY_LATE:
        return False
    return culprit.host in around[root.job].hosts_beside(other.culprit)


def begins_after(one: Finding, other: Finding) -> bool:
    """Whether it began only when the other was well."""
    return one.since_ns > other.last_ns + AFTERMATH_NS


def is_effect(window: Window, case: Case, other: Case, around: dict[str, Surroundings]) -> bool:
    """Whether a case is explained by another one of the same time.

    A stall without a culprit is the effect of a hang that has one, and a job that stands still, or
    what holds it up, gets no other verdict. A slow transfer without a culprit is the effect of any
    case with one in the same job; a network case on the same cable as one nearer to the root is its
    effect, and so is a softer one that no job feels near a harder one (`is_near`). Queues that no
    job feels are the effect of trouble at a host that they lead to. Ranks that slow transfers end
    at are late for what follows: without a reason of their own that is an effect.
    """
    share_a_job = bool(set(jobs_of(case)) & set(jobs_of(other)))
    is_place = is_same(window.ports, case.culprit, other.culprit)
    if is_standstill(case.root):
        is_more = standing(other) > standing(case)
        return share_a_job and is_more and not begins_after(case.root, other.root)
    if other.root.cause is Cause.CRASH and not names_somebody(other.culprit):
        return False  # it explains nothing that came before
    if is_standstill(other.root):
        return other.root.until_ns is None and (share_a_job or is_place)
    if not names_somebody(case.culprit):
        is_over = begins_after(case.root, other.root)
        return share_a_job and names_somebody(other.culprit) and not is_over
    if not is_network(other.root) or not is_network(case.root):
        is_late = share_a_job and case.is_bare and is_network(other.root)
        return is_late and is_at_the_end(window, case, other)
    is_before = is_filled(case) and feeds(window.ports, case.culprit, other.culprit)
    is_deeper = root_rank(other.root) < root_rank(case.root)
    return is_before or (is_deeper and (is_place or is_symptom(case, other, around)))


def is_symptom(case: Case, other: Case, around: dict[str, Surroundings]) -> bool:
    """Of two in the network: whether one is of the same bytes as another nearer to the root."""
    if case.is_clearly_felt:
        return case.is_bare and bool(set(jobs_of(case)) & set(jobs_of(other)))
    is_soft = case.root.cause.facts.is_soft
    return is_soft and is_near(case.culprit, other.culprit, jobs_of(other), around)


def waits_for_storage(case: Case, other: Case) -> bool:
    """Whether a rank is late for nothing but its data, while a server is slow for all ranks."""
    root = case.root
    if other.root.cause is not Cause.SLOW_STORAGE or root.cause is not Cause.STRAGGLER:
        return False
    if not set(jobs_of(case)) & set(jobs_of(other)):
        return False
    reasons = {root.reason, *(one.reason for one in case.support)}
    begun = root.since_ns >= other.root.since_ns - TOGETHER_NS
    return begun and reasons <= {Reason.UNKNOWN, Reason.DATA_LOADING, Reason.STORAGE}


def is_filled(case: Case) -> bool:
    """Whether it is a full queue, or drops in front of one, that no job's times show."""
    root = case.root
    drops = root.cause is Cause.LOSSY_LINK and root.reason is Reason.CONFIGURATION
    return (drops or root.cause is Cause.CONGESTION) and not case.is_clearly_felt


def standing(case: Case) -> int:
    """Of standstills of one job, what explains more than another: 0 explains nothing.

    A job that stands, then one that died, without a culprit; a part that is down; ranks that did
    not come; and what brought them there: a call that the others did not make, a process that died.
    """
    cause, is_named = case.root.cause, names_somebody(case.culprit)
    if cause is Cause.CRASH:
        return 4 if is_named else 1
    if cause is Cause.MISMATCH:
        return 4 if is_named else 2
    return 3 if cause is Cause.HANG else 2 * is_named


def jobs_of(case: Case) -> list[str]:
    names = [one.job for one in case.symptoms if one.job]
    return list(dict.fromkeys(names))


# Verdicts ----------------------------------------------------------------------------------------


def waits(window: Window, case: Case) -> bool:
    """Whether it is too early for a verdict: late evidence may still give a better explanation."""
    if not window.is_live:
        return False
    age_ns = window.to_ns - min([case.root.since_ns, *(one.since_ns for one in case.symptoms)])
    if is_network(case.root) and case.is_bare:
        return age_ns < BARE_WAIT_NS
    if case.root.cause.facts.is_soft:
        return age_ns < SOFT_WAIT_NS
    return age_ns < HARD_WAIT_NS


def to_verdict(
    window: Window, case: Case, findings: Sequence[Finding], around: dict[str, Surroundings]
) -> Verdict:
    root = case.root
    reason = root.reason
    if reason is Reason.UNKNOWN and case.support:
        reason = case.support[0].reason
    symptoms = case.symptoms or [root]
    ends = [one.until_ns for one in (root, *case.symptoms)]
    parts = [root, *case.symptoms, *case.support]
    evidence = [each for part in unique(parts) for each in part.evidence]
    told = {each.labels.get("kind") for each in evidence if each.metric == MESSAGES}
    said = kernel_words(window, with_all_names(window, case.culprit), root.since_ns)
    evidence += [each for each in said if each.labels["kind"] not in told]
    jobs = tuple(jobs_of(case)) or jobs_around(window, case.culprit, around)
    doubt = doubt_of(window, root, case.symptoms)
    certain = confidence(case.root, case.symptoms, case.support)
    verdict = Verdict(
        cause=root.cause,
        culprit=with_all_names(window, case.culprit),
        since_ns=min(one.since_ns for one in (root, *symptoms)),
        until_ns=None if None in ends else max(end for end in ends if end is not None),
        reason=reason,
        confidence=certain if doubt is None else min(certain, doubt.confidence_max),
        layer=layer_of(root, reason),
        jobs=jobs,
        accomplices=tuple(one for one in root.accomplices),
        victims=tuple(victims_of(window, case))[:VICTIMS_MAX],
        evidence=(*evidence[: EVIDENCE_MAX - 1], *((doubt.evidence,) if doubt else ())),
        ruled_out=tuple(ruled_out(window, root, case.symptoms, findings)),
        costs=costs_of(case),
        clock_error_ns=clock_error(window, jobs),
    )
    undecided = undecided_of(window, verdict, unique([root, *case.symptoms]), doubt)
    verdict = msgspec.structs.replace(verdict, undecided=undecided)
    return msgspec.structs.replace(verdict, summary=summary(verdict), action=action(verdict))


def unique(findings: Iterable[Finding]) -> list[Finding]:
    return list({id(one): one for one in findings}.values())


def layer_of(root: Finding, reason: Reason) -> Layer:
    own = root.cause.facts.layer
    return reason.facts.layer if own is Layer.UNKNOWN else own


def victims_of(window: Window, case: Case) -> list[Culprit]:
    """Things that only look guilty: named by findings that this case explains, not the culprit."""
    named = [
        *(victim for one in (case.root, *case.symptoms) for victim in one.victims),
        *(one.culprit for one in case.explained),
    ]
    others = [
        one for one in named if names_somebody(one) and not is_same(window.ports, one, case.culprit)
    ]
    return list(dict.fromkeys(others))


def costs_of(case: Case) -> tuple[Cost, ...]:
    by_job: dict[str, Cost] = {}
    for one in (case.root, *case.symptoms):
        if one.cost is not None:
            known = by_job.get(one.cost.job)
            if known is None or one.cost.lost_seconds > known.lost_seconds:
                by_job[one.cost.job] = one.cost
    return tuple(sorted(by_job.values(), key=lambda cost: (-cost.gpu_hours, cost.job)))


def cost_of(verdict: Verdict) -> float:
    return sum(cost.gpu_hours for cost in verdict.costs)


def jobs_around(
    window: Window, culprit: Culprit, around: dict[str, Surroundings]
) -> tuple[str, ...]:
    """Jobs whose bytes cross a place, where no job's times show that it suffers."""
    row = port_row(window.ports, culprit)
    if row is None and not culprit.switch and not culprit.host:
        return (culprit.job,) if culprit.job else ()
    return tuple(name for name, place in around.items() if place.share_of(culprit) >= SHARE_MIN)


def clock_error(window: Window, jobs: Iterable[str]) -> int | None:
    """The largest clock error of these jobs' hosts; None: no job's clocks were compared."""
    names = set(jobs)
    errors = [job.clock_error_ns for job in window.jobs if job.job in names]
    known = [error for error in errors if error is not None]
    return max(known) if known else None
