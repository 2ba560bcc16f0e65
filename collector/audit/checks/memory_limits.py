"""Jobs that may not lock the memory that their NICs need."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import CAN_LOCK, MEMLOCK

LOCKED_BYTES_MIN = 1 << 30
"""NCCL registers some hundred megabytes for each NIC and more with user buffers."""


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.active_fabric_nics:
        return
    for job in facts.jobs:
        limit = facts.number(job, MEMLOCK)
        if limit is None or limit >= LOCKED_BYTES_MIN or facts.value(job, CAN_LOCK) == "yes":
            continue
        yield Finding(
            check="memory_limits",
            severity=Severity.WARNING,
            device=job,
            title=f"{job} may lock only {limit / (1 << 20):.0f} MiB of memory",
            read=evidence_of([facts.get(job, MEMLOCK), facts.get(job, CAN_LOCK)]),
            expected="unlimited",
            why="What a NIC reads and writes is locked; beyond the limit registration fails.",
            source="Open MPI FAQ, OpenFabrics: locked memory limits",
            fix="ulimit -l unlimited; Slurm: PropagateResourceLimitsExcept=MEMLOCK and "
            "LimitMEMLOCK=infinity for slurmd; containers: --ulimit memlock=-1",
            confidence=0.8,
            cost="NCCL falls back to TCP, or stops with an error when a buffer is registered.",
        )


CHECK = Check(name="memory_limits", reads=frozenset({MEMLOCK, CAN_LOCK}), judge=judge)
