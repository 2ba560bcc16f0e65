"""Ranks of one job on one host whose variables differ."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import NCCL_PREFIX, NONE

PER_RANK = frozenset({"NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE"})
"""Variables that name a file to write: each rank has its own."""
RANK_OF_JOB = re.compile(r"(job .*) (?:rank|process) [0-9]+")
"""The device name of a rank whose variables differ from its job's."""


def judge(facts: Facts) -> Iterator[Finding]:
    for device in facts.jobs:
        job = RANK_OF_JOB.fullmatch(device)
        if job is None or job[1] not in facts.by_device:
            continue
        differing = {
            name: fact
            for name, fact in facts.environment(device).items()
            if name.startswith(NCCL_PREFIX) and name not in PER_RANK
        }
        if not differing:
            continue
        known = [each for name in differing for each in (differing[name], facts.get(job[1], name))]
        shown = ", ".join(
            f"{name} is {fact.value if fact.value != NONE else 'not set'}"
            for name, fact in list(differing.items())[:3]
        )
        yield Finding(
            check="nccl_ranks",
            severity=Severity.WARNING,
            device=device,
            title=f"{device} differs from its job: {shown}",
            read=evidence_of(known[:8]),
            expected="the same variables on all ranks of a job",
            why="Ranks that choose differently wait for each other, or meet on a slow way.",
            source="NCCL user guide, environment variables",
            fix="set NCCL's variables where all ranks are launched from",
            confidence=0.8,
            cost="From a slower algorithm to a hang.",
        )


CHECK = Check(name="nccl_ranks", reads=frozenset({"NCCL_*"}), judge=judge)
