"""Variables that bind NCCL: to an algorithm, to some of the NICs, to a file that is not there."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Fact, Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import (
    ETHERNET,
    FILE_MISSING,
    KIND_RDMA,
    LINK_LAYER,
    PORT_STATE,
    ROCE_V2_GIDS,
)

SOURCE = "NCCL user guide, environment variables: {}"
HCA, GID_INDEX = "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"
FORCED = {
    "NCCL_ALGO": "NCCL chooses by size and ranks; one algorithm for all is wrong for most.",
    "NCCL_PROTO": "NCCL chooses by size; LL128 forced where it is unsafe corrupts data.",
    "NCCL_MAX_NCHANNELS": "Few channels leave NICs and NVLinks idle.",
    "NCCL_NTHREADS": "NCCL chooses the threads of a channel by itself.",
}
"""Variables that take a choice from NCCL, and why that costs."""


def judge(facts: Facts) -> Iterator[Finding]:
    for job in facts.jobs:
        yield from judge_forced(facts, job)
        if (fact := facts.get(job, FILE_MISSING)) is not None:
            yield missing_file(job, fact)
        if (fact := facts.get(job, HCA)) is not None:
            yield from judge_adapters(facts, job, fact)
        if (fact := facts.get(job, GID_INDEX)) is not None:
            yield from judge_gid(facts, job, fact)


def judge_forced(facts: Facts, job: str) -> Iterator[Finding]:
    for name, why in FORCED.items():
        fact = facts.get(job, name)
        if fact is None:
            continue
        yield Finding(
            check="nccl_tuning",
            severity=Severity.WARNING if name in {"NCCL_ALGO", "NCCL_PROTO"} else Severity.INFO,
            device=job,
            title=f"{job} sets {name}={fact.value}",
            read=evidence_of([fact]),
            expected="not set",
            why=why,
            source=SOURCE.format(name),
            fix=f"unset {name}, and compare with nccl-tests",
            confidence=0.6,
            cost="Much of the bandwidth, or latency, at sizes for which it is the wrong choice.",
        )


def missing_file(job: str, fact: Fact) -> Finding:
    name = fact.value.partition("=")[0]
    return Finding(
        check="nccl_tuning",
        severity=Severity.WARNING,
        device=job,
        title=f"{job} sets {fact.value}, and there is no such file",
        read=evidence_of([fact]),
        expected="the file, at that place inside the job's container",
        why="NCCL then goes by what it finds, which in virtual machines is no topology at all.",
        source=SOURCE.format(name),
        fix=f"mount the file into the container, or unset {name}",
        confidence=0.85,
        cost="GPUs use NICs that are far away; rings cross sockets.",
    )


def judge_adapters(facts: Facts, job: str, fact: Fact) -> Iterator[Finding]:
    """NICs that a job leaves out, or names and does not have."""
    devices = facts.of_kind(KIND_RDMA)
    chosen = chosen_adapters(fact.value, devices)
    left_out = [nic for nic in facts.active_fabric_nics if nic not in chosen]
    if not devices or (not left_out and chosen):
        return
    what = f"leaves out {listed(left_out)}" if chosen else "names no RDMA device of this host"
    yield Finding(
        check="nccl_tuning",
        severity=Severity.WARNING if chosen else Severity.CRITICAL,
        device=job,
        title=f"{job} sets NCCL_IB_HCA={fact.value}, which {what}",
        read=evidence_of([fact, *(facts.get(nic, PORT_STATE) for nic in left_out[:4])]),
        expected=f"all of {listed(facts.active_fabric_nics, most=8)}",
        why="GPUs whose nearest NIC is left out share those of others.",
        source=SOURCE.format(HCA),
        fix=f"export {HCA}==" + ",".join(facts.active_fabric_nics[:16]),
        confidence=0.8 if chosen else 0.9,
        cost=f"{len(left_out)} of {len(facts.active_fabric_nics)} training NICs carry nothing."
        if chosen
        else "NCCL falls back to TCP, or stops.",
    )


def chosen_adapters(pattern: str, devices: list[str]) -> list[str]:
    """The devices that NCCL's list means.

    >>> chosen_adapters("=mlx5_0:1,mlx5_1", ["mlx5_0", "mlx5_1", "mlx5_10"])
    ['mlx5_0', 'mlx5_1']
    >>> chosen_adapters("^mlx5_1", ["mlx5_0", "mlx5_1", "mlx5_10"])
    ['mlx5_0']
    """
    is_excluding, rest = pattern.startswith("^"), pattern.removeprefix("^")
    is_exact, rest = rest.startswith("="), rest.removeprefix("=")
    words = [word.partition(":")[0].strip() for word in rest.split(",")]
    chosen = []
    for device in devices:
        matches = any(device == w if is_exact else device.startswith(w) for w in words if w)
        if matches != is_excluding:
            chosen.append(device)
    return chosen


def judge_gid(facts: Facts, job: str, fact: Fact) -> Iterator[Finding]:
    """An address that is none of RoCE v2's: not routed, and without a mark for the queues."""
    if not fact.value.isdecimal():
        return
    tables = facts.each(ROCE_V2_GIDS, facts.active_fabric_nics)
    wrong = [
        nic
        for nic, table in tables.items()
        if facts.value(nic, LINK_LAYER) == ETHERNET and fact.value not in table.value.split(",")
    ]
    if not wrong:
        return
    yield Finding(
        check="nccl_tuning",
        severity=Severity.WARNING,
        device=job,
        title=f"{job} sets {GID_INDEX}={fact.value}, which is not RoCE v2 on {listed(wrong)}",
        read=evidence_of([fact, *(tables[nic] for nic in wrong[:4])]),
        expected=f"one of {tables[wrong[0]].value}, or not set",
        why="RoCE v1 is neither routed nor marked with DSCP: it leaves the lossless class.",
        source=SOURCE.format(GID_INDEX),
        fix=f"unset {GID_INDEX}: NCCL 2.21 and later finds the address by itself",
        confidence=0.85,
        cost="Connections fail across subnets; within one, packets are lost under load.",
    )


CHECK = Check(
    name="nccl_tuning", reads=frozenset({"NCCL_*", FILE_MISSING, ROCE_V2_GIDS}), judge=judge
)
