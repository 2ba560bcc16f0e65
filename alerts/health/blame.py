"""Charges: how much each verdict counts against each thing, by the table of causes. Pure.

A charge's weight answers: *if this verdict is right and a job used this thing now, would the job
suffer from the thing?* Hence a congested or mis-routed switch port does not count against the hosts
behind it, uneven work counts against nothing, and a victim is never charged. A link's trouble
counts for the cable in full, and for the NIC and its host by half until the end is known.

Half-lives follow the nature of the fault, not its cost: heat or another program is gone tomorrow,
while a cable that flapped yesterday flaps again. The figures are ours, between these:
gpud counts flaps over 12 h, Azure over 24 h, UFM lets a port back after two clean hours, NVIDIA's
catalogue wants a reset for most GPU errors, and an NVLink recovery count announced a dead link five
days ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alerts.finding import Finding
from alerts.health.model import Charge, Target, TargetKind
from alerts.judge.explains import ALONE_STRENGTH_MIN
from alerts.judge.incident import Incident
from alerts.judge.names import same_thing
from collector.contract.cause_facts import Blame
from collector.contract.causes import by_reason
from collector.contract.errors import IdentityError
from collector.contract.verdict import Cause, Culprit, Reason

FINDING_SHARE = 0.5
"""A fault in a machine's counters that no job feels yet counts half as much as a verdict: it makes
a thing suspect, never degraded."""
CULPRITS_MAX = 64
"""Accomplices that are charged. A verdict with more is about a program, not about them."""
TEXT_CHARS_MAX = 300
"""Of the sentence kept with a charge."""


def blame_of(cause: Cause, reason: Reason) -> Blame:
    return by_reason(cause, reason).blame or cause.facts.blame


# Charges -----------------------------------------------------------------------------------------


def charges_of(incident: Incident) -> list[Charge]:
    """Each accused thing once, with its largest weight; hosts accused together share the blame.

    An incident that turned out to be another one accuses its culprit no more.
    """
    if incident.became is not None:
        return []
    verdict = incident.verdict
    blame = blame_of(verdict.cause, verdict.reason)
    culprits = (verdict.culprit, *verdict.accomplices[:CULPRITS_MAX])
    sharing = max(1, len({culprit.host for culprit in culprits if culprit.host}))
    found: dict[Target, Charge] = {}
    for culprit in culprits:
        for target, weight, about in accused(culprit, blame):
            whole = weight / sharing if blame.host else weight
            if target not in found or found[target].weight < whole:
                found[target] = Charge(
                    target=target,
                    incident=incident.id,
                    cause=verdict.cause,
                    reason=verdict.reason,
                    confidence=verdict.confidence,
                    weight=whole,
                    half_life_s=blame.half_life_s,
                    since_ns=verdict.since_ns,
                    until_ns=None if incident.is_open else ended_ns(incident),
                    about=about,
                    text=verdict.summary[:TEXT_CHARS_MAX],
                )
    return list(found.values())


def ended_ns(incident: Incident) -> int:
    return incident.verdict.until_ns or incident.last_seen_ns


def accused(culprit: Culprit, blame: Blame) -> Iterator[tuple[Target, float, Target]]:
    """Things that a culprit names, the weight against each, the nearest; bad names name nothing."""
    parts = list(parts_of(culprit))
    weights = {
        TargetKind.HOST: blame.host,
        TargetKind.GPU: blame.gpu,
        TargetKind.DEVICE: blame.device,
        TargetKind.LINK: blame.link,
        TargetKind.SWITCH: blame.switch,
    }
    own = [part for part in parts if part.kind is not TargetKind.HOST and weights[part.kind] > 0]
    for part in parts:
        if weights[part.kind] > 0:
            nearest = max(own, key=lambda each: weights[each.kind], default=part)
            about = nearest if part.kind is TargetKind.HOST and nearest.host == part.host else part
            yield part, weights[part.kind], about


def parts_of(culprit: Culprit) -> Iterator[Target]:
    try:
        if culprit.host:
            yield Target.of_host(culprit.host)
            if culprit.gpu is not None:
                yield Target.of_gpu(culprit.host, str(culprit.gpu))
        if culprit.host and culprit.device:
            yield Target.of_device(culprit.host, culprit.device)
            if culprit.port:
                yield Target.of_link(culprit.host, culprit.device, culprit.port)
        elif culprit.switch and culprit.switch_port:
            yield Target.of_link(culprit.switch, culprit.switch, culprit.switch_port)
        if culprit.switch:
            yield Target.of_switch(culprit.switch)
    except IdentityError:
        return


# Findings ----------------------------------------------------------------------------------------


def signs_of(findings: Iterable[Finding], incidents: Iterable[Incident]) -> list[Charge]:
    """Weak charges from findings about things that no open incident covers.

    Counters of an idle host show a dead cable that no job feels yet. Only clear findings of
    machines count, and none about things that an incident accuses or explains: those are charged
    already, or symptoms. A forecast (an optic that is dying) is such a sign: no job suffers from it
    yet, and the next one should run elsewhere.
    """
    covered = by_machine(incidents)
    found: dict[Target, Charge] = {}
    for finding in findings:
        if not is_sign(finding) or is_among(finding.culprit, covered):
            continue
        blame = blame_of(finding.cause, finding.reason)
        for target, weight, about in accused(finding.culprit, blame):
            charge = Charge(
                target=target,
                incident="",
                cause=finding.cause,
                reason=finding.reason,
                confidence=finding.strength,
                weight=weight * FINDING_SHARE,
                half_life_s=blame.half_life_s,
                since_ns=finding.since_ns,
                until_ns=None,
                about=about,
                text=finding.evidence[0].text[:TEXT_CHARS_MAX] if finding.evidence else "",
                is_forecast=finding.is_forecast,
            )
            known = found.get(target)
            if known is None or known.confidence * known.weight < charge.confidence * charge.weight:
                found[target] = charge
    return list(found.values())


def is_sign(finding: Finding) -> bool:
    """Whether a finding counts by itself: a machine's own, clear, and no effect of others'."""
    is_machines_own = not finding.job and (finding.is_forecast or not finding.is_context)
    return (
        is_machines_own
        and not finding.cause.facts.is_soft
        and finding.strength >= ALONE_STRENGTH_MIN
    )


def by_machine(incidents: Iterable[Incident]) -> dict[str, list[Culprit]]:
    found: dict[str, list[Culprit]] = {}
    for incident in incidents:
        verdict = incident.verdict
        for culprit in (verdict.culprit, *verdict.accomplices, *verdict.victims):
            for machine in {culprit.host, culprit.switch} - {""}:
                found.setdefault(machine, []).append(culprit)
    return found


def is_among(culprit: Culprit, known: dict[str, list[Culprit]]) -> bool:
    near = [*known.get(culprit.host, ()), *known.get(culprit.switch, ())]
    return any(same_thing(culprit, one) for one in near)
