"""Training NICs whose link is down, or slower than that of their neighbours or their own best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts, listed, parse_number
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import PORT_LANES, PORT_RATE, PORT_RATE_MAX, PORT_STATE

NEIGHBOURS_MIN = 3
"""Other training NICs that must agree before one is called slow."""
MAJORITY_SHARE = 0.75
"""Of the training NICs, that agree: six of eight."""
SOURCE = "the majority of the same host's NICs of the same model"
COST = "A ring is as fast as its slowest link: the whole job waits for this one."


def judge(facts: Facts) -> Iterator[Finding]:
    nics, active = facts.fabric_nics, facts.active_fabric_nics
    if len(active) > NEIGHBOURS_MIN and len(active) >= MAJORITY_SHARE * len(nics):
        for nic in nics:
            if nic not in active and facts.value(nic, PORT_STATE):
                yield down(facts, nic, len(active))
    rates = facts.each(PORT_RATE, active)
    if not rates:
        return
    common, count = Counter(fact.value for fact in rates.values()).most_common(1)[0]
    has_majority = count >= NEIGHBOURS_MIN and count >= MAJORITY_SHARE * len(rates)
    usual = parse_number(common) or 0.0
    for nic in rates:
        rate = facts.number(nic, PORT_RATE)
        if has_majority and rate is not None and rate < usual:
            yield slow(facts, nic, common, count)
    yield from judge_capability(facts, active)


def down(facts: Facts, nic: str, others: int) -> Finding:
    return Finding(
        check="port_rate",
        severity=Severity.WARNING,
        device=nic,
        title=f"The link of {nic} is {facts.value(nic, PORT_STATE)}; {others} others are up",
        read=evidence_of([facts.get(nic, PORT_STATE)]),
        expected="active",
        why="NCCL leaves the NIC out, and its GPU uses one that is farther away.",
        source=SOURCE,
        fix="look at cable and switch port; ibstat, ip link; a state of init waits for opensm",
        confidence=0.7,
        cost="The bandwidth of one rail.",
    )


def slow(facts: Facts, nic: str, common: str, count: int) -> Finding:
    rate, lanes = facts.value(nic, PORT_RATE), facts.value(nic, PORT_LANES)
    return Finding(
        check="port_rate",
        severity=Severity.CRITICAL,
        device=nic,
        title=f"The link of {nic} runs at {rate} Gb/s; {count} others run at {common}",
        read=evidence_of([facts.get(nic, setting) for setting in (PORT_RATE, PORT_LANES)]),
        expected=f"{common} Gb/s",
        why=f"It came up with {lanes or 'fewer'} lanes or at a lower speed: a cable or a port.",
        source=SOURCE,
        fix="reseat or replace the cable; then set the link down and up",
        confidence=0.85,
        cost=COST,
    )


def judge_capability(facts: Facts, active: list[str]) -> Iterator[Finding]:
    """NICs that could be faster, where all are alike: switch or cables may be meant so."""
    below = [
        nic
        for nic in active
        if (facts.number(nic, PORT_RATE) or 0.0) < (facts.number(nic, PORT_RATE_MAX) or 0.0)
    ]
    if not below or len(below) < len(active):
        return
    first = below[0]
    rate, most = facts.value(first, PORT_RATE), facts.value(first, PORT_RATE_MAX)
    yield Finding(
        check="port_rate",
        severity=Severity.INFO,
        title=f"{listed(below)}: {rate} Gb/s, and the NICs could do {most}",
        read=evidence_of([facts.get(first, PORT_RATE), facts.get(first, PORT_RATE_MAX)]),
        expected=f"{most} Gb/s, unless switches and cables are slower",
        why="The speed is what both ends and the cable can do.",
        source="the NIC's own list of link modes",
        fix="ethtool INTERFACE shows what each end offers",
        confidence=0.4,
        cost="What the slower switches cost, if that is not meant so.",
    )


CHECK = Check(
    name="port_rate",
    reads=frozenset({PORT_RATE, PORT_RATE_MAX, PORT_LANES, PORT_STATE}),
    judge=judge,
)
