"""Traffic of the kernel on NICs that are there for training."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import OTHER_TRAFFIC

SHARES = {"over 50 %": Severity.WARNING, "10 to 50 %": Severity.WARNING}
"""Shares that matter; below a tenth it may be start-up and checkpoints."""


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.gpus:
        return
    shares = facts.each(OTHER_TRAFFIC, facts.active_fabric_nics)
    for share, severity in SHARES.items():
        nics = [nic for nic, fact in shares.items() if fact.value == share]
        if not nics:
            continue
        yield Finding(
            check="other_traffic",
            severity=severity,
            device=nics[0] if len(nics) == 1 else "",
            title=f"{share} of what {listed(nics)} carried since boot was not RDMA",
            read=evidence_of([shares[nic] for nic in nics[:8]]),
            expected="under a tenth",
            why="Storage, ssh or TCP collectives share the queues of training.",
            source="Gangidi et al., RDMA over Ethernet for distributed AI training, SIGCOMM 2024: "
            "the training network is apart",
            fix="find it with ss -tnp and ip route; move it to the front-end network",
            confidence=0.6,
            cost="Its bursts delay collectives, and are not paced with them.",
        )


CHECK = Check(name="other_traffic", reads=frozenset({OTHER_TRAFFIC}), judge=judge)
