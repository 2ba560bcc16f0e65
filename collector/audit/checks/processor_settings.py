"""Processors that save power or move pages while NCCL's threads wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import CPU_GOVERNOR, NUMA_BALANCING, NUMA_NODES

SLOW_GOVERNORS = frozenset({"powersave", "ondemand", "conservative"})
SOURCE = "NVIDIA, performance tuning for Mellanox adapters: processor power management"


def judge(facts: Facts) -> Iterator[Finding]:
    """Findings worth knowing: what they cost depends on the work."""
    governor = facts.get("", CPU_GOVERNOR)
    if governor is not None and SLOW_GOVERNORS & set(governor.value.split(",")):
        yield Finding(
            check="processor_settings",
            severity=Severity.INFO,
            title=f"Processors choose their clock by {governor.value}",
            read=evidence_of([governor]),
            expected="performance",
            why="NCCL's proxy threads sleep and wake all the time: they meet a slow clock.",
            source=SOURCE,
            fix="cpupower frequency-set -g performance",
            confidence=0.5,
            cost="Latency of small collectives; launch of kernels.",
        )
    balancing = facts.get("", NUMA_BALANCING)
    if balancing is not None and balancing.value != "0" and facts.number("", NUMA_NODES) != 1:
        yield Finding(
            check="processor_settings",
            severity=Severity.INFO,
            title="The kernel moves pages between NUMA nodes by itself",
            read=evidence_of([balancing, facts.get("", NUMA_NODES)]),
            expected="0",
            why="To learn who uses a page it unmaps it, and the next access waits.",
            source="Linux, sysctl/kernel: numa_balancing",
            fix="sysctl kernel.numa_balancing=0",
            confidence=0.4,
            cost="Short stalls of ranks, and of all ranks that wait for them.",
        )


CHECK = Check(
    name="processor_settings",
    reads=frozenset({CPU_GOVERNOR, NUMA_BALANCING, NUMA_NODES}),
    judge=judge,
)
