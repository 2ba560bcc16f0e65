"""Training NICs of one host that are set otherwise than their neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.checks.mtu import ROCE_MTU_MIN
from collector.audit.facts import Facts, listed, parse_number
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import (
    CMA_TOS,
    DCQCN_PREFIX,
    DRIVER_VERSION,
    DSCP_MAP,
    ECN_NOTIFY,
    ECN_REACT,
    FIRMWARE,
    INTERFACE_MTU,
    PAUSE,
    PFC,
    TRAFFIC_CLASS,
    TRUST,
    compared,
)

NEIGHBOURS_MIN = 3
"""Other NICs that must agree before one is called different."""
MAJORITY_SHARE = 0.75
SETTINGS = (
    *(FIRMWARE, DRIVER_VERSION, INTERFACE_MTU, TRUST, PFC, DSCP_MAP, PAUSE),
    *(ECN_NOTIFY, ECN_REACT, TRAFFIC_CLASS, CMA_TOS),
)


def judge(facts: Facts) -> Iterator[Finding]:
    nics = facts.active_fabric_nics
    if len(nics) <= NEIGHBOURS_MIN:
        return
    parameters = {
        name for nic in nics for name in facts.by_device[nic] if name.startswith(DCQCN_PREFIX)
    }
    for setting in (*SETTINGS, *sorted(parameters)):
        known = facts.each(setting, nics)
        counts = Counter(fact.value for fact in known.values())
        if len(counts) <= 1:
            continue
        common, count = counts.most_common(1)[0]
        if count < NEIGHBOURS_MIN or count < MAJORITY_SHARE * len(known):
            continue
        differing = [nic for nic, fact in known.items() if fact.value != common]
        if setting == INTERFACE_MTU:  # `mtu` reports a small MTU
            sizes = {nic: parse_number(known[nic].value) or 0.0 for nic in differing}
            differing = [nic for nic in differing if sizes[nic] >= ROCE_MTU_MIN]
        rule = compared(setting)
        if not differing or rule is None:
            continue
        like = next(nic for nic, fact in known.items() if fact.value == common)
        values = listed(sorted({known[nic].value for nic in differing}))
        yield Finding(
            check="unlike_nics",
            severity=Severity.WARNING,
            device=differing[0] if len(differing) == 1 else "",
            title=f"{setting} of {listed(differing)} is {values}; {count} other NICs have {common}",
            read=evidence_of([*(known[nic] for nic in differing[:6]), known[like]]),
            expected=common,
            why=rule.why,
            source="the majority of the same host's NICs of the same model",
            fix=f"set it as {like} has it",
            confidence=0.8,
            cost="The rail of this NIC behaves otherwise than the others, and all wait for it.",
        )


CHECK = Check(name="unlike_nics", reads=frozenset({*SETTINGS, f"{DCQCN_PREFIX}*"}), judge=judge)
