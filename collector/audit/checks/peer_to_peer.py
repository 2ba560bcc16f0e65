"""What sends traffic between GPU and NIC a longer way: ACS on bridges, and translating IOMMUs."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import ACS_BRIDGES, IOMMU_COMMAND_LINE, IOMMU_DOMAIN, NONE

SOURCE = "NCCL user guide, troubleshooting: PCI Access Control Services (ACS)"
TRANSLATED = frozenset({"DMA", "DMA-FQ"})
"""Kinds of IOMMU domain in which each address is translated (sysfs-kernel-iommu_groups)."""


def judge(facts: Facts) -> Iterator[Finding]:
    nics, gpus = facts.fabric_nics, facts.gpus
    if not nics or not gpus:
        return
    redirecting = {
        device: fact
        for device, fact in facts.each(ACS_BRIDGES, (*gpus, *nics)).items()
        if fact.value != NONE
    }
    if redirecting:
        bridges = sorted({b for fact in redirecting.values() for b in fact.value.split(",")})
        yield Finding(
            check="peer_to_peer",
            severity=Severity.WARNING,
            title=f"{len(bridges)} bridges above {listed(redirecting)} redirect (ACS is on)",
            read=evidence_of(list(redirecting.values())[:8]),
            expected="ACS redirection off on all bridges between GPUs and NICs",
            why="What a GPU sends to the NIC beside it then goes up to the root and down again.",
            source=SOURCE,
            fix=f"setpci -s {bridges[0]} ECAP_ACS+6.w=0000 for each; or disable ACS in the BIOS "
            "(not in virtual machines, which need it)",
            confidence=0.8,
            cost="GPUDirect RDMA at a fraction of its speed; sometimes NCCL hangs.",
        )
    domains = facts.each(IOMMU_DOMAIN, (*nics, *gpus))
    translated = [device for device, fact in domains.items() if fact.value in TRANSLATED]
    if translated:
        known = [domains[device] for device in translated[:8]]
        yield Finding(
            check="peer_to_peer",
            severity=Severity.WARNING,
            title=f"The IOMMU translates what {listed(translated)} reads and writes",
            read=evidence_of([*known, facts.get("", IOMMU_COMMAND_LINE)]),
            expected="identity (iommu=pt), or the IOMMU off",
            why="Each transfer looks its address up, and between devices it goes over the root.",
            source=SOURCE,
            fix="add iommu=pt to the kernel's command line and reboot",
            confidence=0.7,
            cost="A good part of GPUDirect RDMA's bandwidth.",
        )


CHECK = Check(
    name="peer_to_peer",
    reads=frozenset({ACS_BRIDGES, IOMMU_DOMAIN, IOMMU_COMMAND_LINE}),
    judge=judge,
)
