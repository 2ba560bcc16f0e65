"""How much each verdict speaks against whom: the one table behind every risk. Pure.

A charge's weight answers: *if this verdict is right and a job used this thing now, would the job
suffer from the thing?* Hence a congested or mis-routed switch port says nothing against the hosts
behind it, work that is uneven says nothing against anybody, and a victim is never charged. A link's
trouble counts for the cable in full, and for the NIC and its host by half until somebody is named.

Half-lives follow the nature of the fault, not its cost: what was heat or another program is gone
tomorrow, while a cable that flapped yesterday flaps again. The figures are ours, between these:
gpud counts flaps over 12 h, Azure over 24 h, UFM lets a port back after two clean hours, NVIDIA's
catalogue wants a reset for most GPU errors, and an NVLink recovery count announced a dead link five
days ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from alerts.finding import Finding
from alerts.health.model import Charge, Target, TargetKind
from alerts.incident import Incident
from alerts.names import same_thing
from alerts.verdict import ALONE_STRENGTH_MIN, SOFT
from collector.contract.errors import IdentityError
from collector.contract.verdict import Cause, Culprit, Reason

MINUTES, HOURS, DAYS = 60.0, 3_600.0, 86_400.0

FINDING_SHARE = 0.5
"""What a machine's counters show and no job feels yet is half as bad as what a judge has said: it
makes a thing suspect, never degraded."""
CULPRITS_MAX = 64
"""Accomplices that are charged. A verdict with more names a program's trouble, not theirs."""
TEXT_CHARS_MAX = 300
"""Of a sentence that is kept with a charge."""


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """How much a cause speaks against each sort of thing, 0 to 1, and how long that is remembered.

    ``host`` counts where the culprit has a host, whatever else it names.
    """

    host: float = 0.0
    gpu: float = 0.0
    device: float = 0.0
    link: float = 0.0
    switch: float = 0.0
    half_life_s: float


NOBODY = Blame(half_life_s=HOURS)
"""Work that is uneven, and standstills in which nobody is named."""
PASSING_LOAD = Blame(link=0.3, half_life_s=10 * MINUTES)
"""Traffic meets there: the place is bad to use now, and nothing is broken."""
GPU_BROKEN = Blame(host=1.0, gpu=1.0, half_life_s=3 * DAYS)
PCIE_SLOW = Blame(host=0.9, gpu=0.9, device=0.9, half_life_s=3 * DAYS)
"""A slot that came up narrow stays so until it is power-cycled."""
NIC_BAD = Blame(host=1.0, device=1.0, link=0.5, half_life_s=1 * DAYS)
CABLE_BAD = Blame(host=0.8, device=0.5, link=1.0, half_life_s=3 * DAYS)
"""Whoever is plugged into it suffers until it is swapped, though its NIC may be sound."""
LINK_DOWN = Blame(host=0.8, device=0.5, link=1.0, half_life_s=2 * DAYS)
ONE_END = Blame(host=0.5, device=0.5, link=0.9, half_life_s=6 * HOURS)
"""The cable is known and the end is not: each has half of it."""
SWITCH_BAD = Blame(link=0.5, switch=1.0, half_life_s=1 * DAYS)
"""The hosts behind it are its victims."""
MISCONFIGURED = Blame(host=0.8, device=0.8, link=0.5, half_life_s=1 * DAYS)

BLAMES: dict[tuple[Cause, Reason | None], Blame] = {
    (Cause.STRAGGLER, Reason.GPU_THROTTLED): Blame(host=0.8, gpu=0.8, half_life_s=2 * HOURS),
    (Cause.STRAGGLER, Reason.GPU_ERROR): GPU_BROKEN,
    (Cause.STRAGGLER, Reason.HOST_STALL): Blame(host=0.7, half_life_s=1 * HOURS),
    # Storage is shared: who waits for it today is chance.
    (Cause.STRAGGLER, Reason.DATA_LOADING): Blame(host=0.2, half_life_s=1 * HOURS),
    (Cause.STRAGGLER, Reason.PCIE): PCIE_SLOW,
    (Cause.STRAGGLER, Reason.IMBALANCE): NOBODY,
    # It is late and nobody knows why: as often the program as the machine.
    (Cause.STRAGGLER, None): Blame(host=0.5, gpu=0.5, half_life_s=6 * HOURS),
    (Cause.SLOW_LINK, Reason.NIC): NIC_BAD,
    (Cause.SLOW_LINK, Reason.PCIE): PCIE_SLOW,
    (Cause.SLOW_LINK, Reason.RATE_DOWNGRADE): Blame(
        host=0.8, device=0.5, link=1.0, half_life_s=1 * DAYS
    ),
    (Cause.SLOW_LINK, Reason.CABLE): CABLE_BAD,
    (Cause.SLOW_LINK, Reason.SWITCH): SWITCH_BAD,
    (Cause.SLOW_LINK, Reason.ROUTING): PASSING_LOAD,
    (Cause.SLOW_LINK, Reason.NEIGHBOUR): PASSING_LOAD,
    (Cause.SLOW_LINK, Reason.CONFIGURATION): MISCONFIGURED,
    (Cause.SLOW_LINK, None): ONE_END,
    (Cause.LOSSY_LINK, Reason.NIC): NIC_BAD,
    (Cause.LOSSY_LINK, Reason.PCIE): PCIE_SLOW,
    (Cause.LOSSY_LINK, Reason.CABLE): CABLE_BAD,
    (Cause.LOSSY_LINK, Reason.SWITCH): SWITCH_BAD,
    (Cause.LOSSY_LINK, Reason.NEIGHBOUR): PASSING_LOAD,
    (Cause.LOSSY_LINK, Reason.ROUTING): PASSING_LOAD,
    (Cause.LOSSY_LINK, Reason.CONFIGURATION): MISCONFIGURED,
    (Cause.LOSSY_LINK, None): Blame(host=0.5, device=0.5, link=0.9, half_life_s=1 * DAYS),
    (Cause.LINK_FLAP, Reason.SWITCH): SWITCH_BAD,
    (Cause.LINK_FLAP, None): LINK_DOWN,
    (Cause.PAUSE_STORM, Reason.SWITCH): SWITCH_BAD,
    (Cause.PAUSE_STORM, Reason.NEIGHBOUR): PASSING_LOAD,
    # Its root: a receiver that cannot keep up stops everybody who sends to it.
    (Cause.PAUSE_STORM, None): Blame(host=0.9, device=0.9, link=0.5, half_life_s=6 * HOURS),
    (Cause.CONGESTION, None): PASSING_LOAD,
    (Cause.MICROBURST, None): PASSING_LOAD,
    (Cause.HANG, Reason.GPU_ERROR): GPU_BROKEN,
    (Cause.HANG, Reason.LINK_DOWN): LINK_DOWN,
    (Cause.HANG, Reason.CABLE): CABLE_BAD,
    (Cause.HANG, Reason.SWITCH): SWITCH_BAD,
    (Cause.HANG, Reason.PCIE): PCIE_SLOW,
    # It is somewhere else in its program, mostly: a bug follows the job, not the host.
    (Cause.HANG, Reason.NOT_LAUNCHED): Blame(host=0.3, gpu=0.3, half_life_s=6 * HOURS),
    (Cause.HANG, None): Blame(host=0.5, gpu=0.5, half_life_s=12 * HOURS),
    (Cause.STALL, None): NOBODY,
}
"""By cause and reason; None: every other reason."""


def blame_of(cause: Cause, reason: Reason) -> Blame:
    """How much this verdict speaks against whom."""
    return BLAMES.get((cause, reason)) or BLAMES[cause, None]


# Charges -----------------------------------------------------------------------------------------


def charges_of(incident: Incident) -> list[Charge]:
    """What an incident says against each thing that it accuses: each thing once, the most of it.

    Several hosts that are accused together share the blame. Victims are not charged.
    """
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
    """When a closed incident was last seen."""
    return incident.verdict.until_ns or incident.last_seen_ns


def accused(culprit: Culprit, blame: Blame) -> Iterator[tuple[Target, float, Target]]:
    """The things that a culprit names, the weight against each, and the nearest thing named.

    A name that nothing can have (it came from outside) names nothing.
    """
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
    """Every thing that a culprit names."""
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
    """What findings say against things that no open incident speaks of: weak charges.

    Counters of an idle host show a dead cable that no job feels yet. Only what machines show
    clearly by themselves counts, and nothing that an incident accuses or explains: that is said
    already, or a symptom.
    """
    spoken_of = by_machine(incidents)
    found: dict[Target, Charge] = {}
    for finding in findings:
        if not is_sign(finding) or is_among(finding.culprit, spoken_of):
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
            )
            known = found.get(target)
            if known is None or known.confidence * known.weight < charge.confidence * charge.weight:
                found[target] = charge
    return list(found.values())


def is_sign(finding: Finding) -> bool:
    """Whether a finding speaks for itself: a machine's own, clear, and no effect of others'."""
    is_machines_own = not finding.job and not finding.is_context
    return is_machines_own and finding.cause not in SOFT and finding.strength >= ALONE_STRENGTH_MIN


def by_machine(incidents: Iterable[Incident]) -> dict[str, list[Culprit]]:
    """Everybody whom incidents speak of, accused or victim, by host and by switch."""
    found: dict[str, list[Culprit]] = {}
    for incident in incidents:
        verdict = incident.verdict
        for culprit in (verdict.culprit, *verdict.accomplices, *verdict.victims):
            for machine in {culprit.host, culprit.switch} - {""}:
                found.setdefault(machine, []).append(culprit)
    return found


def is_among(culprit: Culprit, known: dict[str, list[Culprit]]) -> bool:
    """Whether a culprit may be one of these."""
    near = [*known.get(culprit.host, ()), *known.get(culprit.switch, ())]
    return any(same_thing(culprit, one) for one in near)
