"""Training NICs that must not reorder, or that ask for little at a time, over PCI Express."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import MAX_READ_REQUEST, PORT_RATE, RELAXED_ORDERING

READ_REQUEST_BYTES = 4096
"""What a NIC of 100 Gb/s or more should ask for at once."""
FAST_GIGABITS = 100.0
SOURCE = "NVIDIA, Understanding PCIe configuration for maximum performance"


def judge(facts: Facts) -> Iterator[Finding]:
    fast = [
        nic for nic in facts.fabric_nics if (facts.number(nic, PORT_RATE) or 0) >= FAST_GIGABITS
    ]
    ordering = facts.each(RELAXED_ORDERING, fast)
    strict = [nic for nic, fact in ordering.items() if fact.value == "off"]
    if strict:
        yield Finding(
            check="pcie_ordering",
            severity=Severity.WARNING,
            device=strict[0] if len(strict) == 1 else "",
            title=f"Relaxed ordering is off for {listed(strict)}",
            read=evidence_of([ordering[nic] for nic in strict[:8]]),
            expected="on",
            why="Strictly ordered writes wait for each other, most of all on AMD EPYC.",
            source=SOURCE,
            fix="enable it in the BIOS, or setpci -s ADDRESS CAP_EXP+8.w (bit 4)",
            confidence=0.7,
            cost="Bandwidth to memory and to GPUs; how much depends on the processor.",
        )
    requests = facts.each(MAX_READ_REQUEST, fast)
    small = [
        nic for nic in requests if (facts.number(nic, MAX_READ_REQUEST) or 0) < READ_REQUEST_BYTES
    ]
    if small:
        size = facts.value(small[0], MAX_READ_REQUEST)
        yield Finding(
            check="pcie_ordering",
            severity=Severity.INFO,
            device=small[0] if len(small) == 1 else "",
            title=f"{listed(small)} may read only {size} bytes at a time",
            read=evidence_of([requests[nic] for nic in small[:8]]),
            expected=f"{READ_REQUEST_BYTES} bytes",
            why="With small requests more of them must be under way to fill the slot.",
            source=SOURCE,
            fix="setpci -s ADDRESS CAP_EXP+8.w (bits 12 to 14: 5)",
            confidence=0.5,
            cost="Some percent when sending at full speed; nothing if the slot has time to spare.",
        )


CHECK = Check(
    name="pcie_ordering", reads=frozenset({RELAXED_ORDERING, MAX_READ_REQUEST}), judge=judge
)
